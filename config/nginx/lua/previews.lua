-- Chooses where a request for a preview goes: to the guest, whose address each worker remembers for
-- two seconds, or to the gateway, which wakes sandboxes and answers for all others.
--
-- 1. `route` asks the gateway for the address, unless it is known. 2. `balance` takes it; what
-- cannot be reached is tried once more, through the gateway. nginx does that only as long as
-- nothing that may not be sent twice has been sent.
local balancer = require "ngx.balancer"

local M = {}
local TTL = 2            -- seconds that an address is used without asking
local STALE = 20         -- and while the gateway is away; ports rest for 60 s
local PATIENCE = 100     -- times a tenth of a second that an absent gateway is waited for
local HOSTS_MOST = 20000
local gateway
local peers, count = {}, 0

-- Tells this worker where the gateway listens.
function M.init(port)
    gateway = { ip = "127.0.0.1", port = port, is_gateway = true }
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
    peers[host] = { ip = ip, port = tonumber(port), asked_at = ngx.now() }
end

local function forget(host)
    if peers[host] then
        peers[host], count = nil, count - 1
    end
end

-- For the access phase: afterwards the host is remembered if its sandbox runs.
function M.route()
    local host = ngx.var.host
    for _ = 1, PATIENCE do
        local peer = peers[host]
        if not peer or ngx.now() - peer.asked_at > TTL then
            local line = ask(host)
            if line then
                local ip, port = line:match("^(%S+) (%d+)$")
                if ip then
                    remember(host, ip, port)
                else
                    forget(host)
                end
                peer = peers[host]
            elseif not peer or ngx.now() - peer.asked_at > STALE then
                peer = false   -- the gateway is away, and we know nothing
            end
        end
        if peer ~= false then
            return
        end
        ngx.sleep(0.1)
    end
end

-- For a request that got no answer from anybody: what may be sent twice is sent again, once the
-- gateway answers.
function M.again()
    if ngx.var.preview_pool ~= "guests" then
        return ngx.exec("/_edge/away")
    end
    M.route()
end

-- For the balancer: the guest first, then the gateway.
function M.balance()
    local host = ngx.var.host
    local peer = peers[host]
    if balancer.get_last_failure() then
        forget(host)
        peer = nil
    end
    peer = peer or gateway
    if not peer.is_gateway then
        balancer.set_more_tries(1)
    end
    balancer.set_current_peer(peer.ip, peer.port)
end

return M
