-- Chooses where a request for a preview goes: to the guest, whose address each worker remembers for
-- two seconds, or to the gateway, which wakes sandboxes and answers for all others.
--
-- 1. `balance_at_once` takes the address if it is known; that needs no phase that may wait, whose
-- coroutine costs more than all the rest. 2. Otherwise `route` asks the gateway for it; of a host in
-- use it is asked for beside the requests, so that none waits for a busy gateway, unless too many
-- are. What there is not is answered here: whoever guesses hosts is to cost the gateway no more than
-- a line. 3. What cannot be reached is tried once more, through the gateway, as long as nothing that
-- may not be sent twice has been sent.
local balancer = require "ngx.balancer"
local repeating = require "repeating"
local now, var, timer = ngx.now, ngx.var, ngx.timer

local M = {}
local TTL = 2            -- seconds that an address is used without asking
local ASKED_BESIDE = 4   -- and while it is asked for beside the requests
local BESIDE_MOST = 100  -- at a time; nginx drops what would be more than 256 timers
local STALE = 20         -- and while the gateway is away; ports rest for 60 s
local PATIENCE = 100     -- times a tenth of a second that an absent gateway is waited for
local HOSTS_MOST = 20000
local BUSY = -3          -- what nginx calls it if there is no upstream, and answers with 502
local gateway, domain_length
local peers, count = {}, 0

-- Tells this worker where the gateway listens, and below which domain previews are.
function M.init(port, domain)
    gateway = { ip = "127.0.0.1", port = port, is_gateway = true }
    domain_length = #domain
end

-- The gateway's line about a host; nil if the gateway does not answer. A kept connection may have
-- been closed by a gateway that ended: that is tried again.
local function ask(host)
    for _ = 1, 2 do
        local sock = ngx.socket.tcp()
        sock:settimeouts(1000, 1000, 5000)
        if not sock:connect(gateway.ip, gateway.port) then
            return nil
        end
        local kept = sock:getreusedtimes() > 0
        local line = sock:send("LOOKUP " .. host .. "\r\n") and sock:receive("*l")
        if line then
            sock:setkeepalive(15000, 64)
            return line
        end
        sock:close()
        if not kept then
            return nil
        end
    end
end

local function remember(host, ip, port)
    if not peers[host] then
        count = count + 1
        if count > HOSTS_MOST then
            peers, count = {}, 1
        end
    end
    peers[host] = { ip = ip, port = tonumber(port), asked_at = now() }
end

local function forget(host)
    if peers[host] then
        peers[host], count = nil, count - 1
    end
end

-- Asks where a host leads and remembers it if its sandbox runs; false if the gateway is away. The
-- second value is true if there is no such host.
local function look_up(host)
    local line = ask(host)
    if not line then
        return false
    end
    local ip, port = line:match("^(%S+) (%d+)$")
    if ip then
        remember(host, ip, port)
    else
        forget(host)
    end
    return true, line == "?"
end

-- Asks while requests go on to the address that is known; false if too many are asked for so.
local function look_up_beside(peer, host)
    peer.is_asked = timer.running_count() + timer.pending_count() < BESIDE_MOST
                    and timer.at(0, function() look_up(host) end)
    return peer.is_asked
end

-- True if the address of a host may be used at once.
local function is_known(host)
    local peer = peers[host]
    local age = peer and now() - peer.asked_at
    return age and (age <= TTL or age <= ASKED_BESIDE and (peer.is_asked
                                                          or look_up_beside(peer, host)))
end

-- Afterwards the host is remembered if its sandbox runs; an absent gateway is asked that often. The
-- gateway goes by the first label: with more than one before the domain a preview would have as many
-- hosts as anybody likes, each remembered and looked up.
local function find(times)
    local host = var.host
    if host:find(".", 1, true) ~= #host - domain_length then
        return ngx.exec("/_edge/unknown")
    end
    for _ = 1, times do
        if is_known(host) then
            return
        end
        local is_answered, is_unknown = look_up(host)
        local peer = peers[host]
        if is_unknown then
            return ngx.exec("/_edge/unknown")
        elseif is_answered or peer and now() - peer.asked_at <= STALE then
            return
        end
        ngx.sleep(0.1)   -- the gateway is away, and we know nothing
    end
end

-- For the access phase. Where a plain request was sent at once, in vain, is asked anew.
function M.route()
    if var.is_plain ~= "" and is_known(var.host) then
        forget(var.host)
    end
    find(PATIENCE)
end

-- For a request that got no answer from anybody: what may be sent twice is sent again, once the
-- gateway answers.
function M.again()
    if not repeating.is_safe() then
        return ngx.exec("/_edge/away")
    end
    local has_waited = now() - ngx.req.start_time() >= PATIENCE / 10
    find(has_waited and 1 or PATIENCE)
end

-- For the balancer of plain requests: the guest, or nobody if a request must wait.
function M.balance_at_once()
    local host = var.host
    if not is_known(host) then
        return ngx.exit(BUSY)
    end
    local peer = peers[host]
    balancer.set_current_peer(peer.ip, peer.port)
end

-- For the balancer: the guest first, then the gateway, or nobody.
function M.balance()
    local host = var.host
    local peer = peers[host]
    if balancer.get_last_failure() then
        forget(host)
        if not repeating.may_go_on() then
            return ngx.exit(BUSY)
        end
        peer = nil
    end
    peer = peer or gateway
    if not peer.is_gateway then
        balancer.set_more_tries(1)
    end
    balancer.set_current_peer(peer.ip, peer.port)
end

return M
