-- Sends requests for served apps to their sandboxes, by what the gateway tells each worker over a
-- connection that the worker keeps (app/gateway/apps/workers.py), and counts those in flight.
--
-- 1. A worker goes by what it was told until the time it was told; then it waits for the gateway. 2.
-- `balance_at_once` looks up and counts in one step; that needs no phase that may wait, whose
-- coroutine costs more than all the rest. 3. What is held, what may not be sent twice, what wants
-- to become a WebSocket and what nobody knows takes `route`, which can wait. What nobody knows then
-- goes to the gateway, which knows, wakes and answers. 4. A WebSocket counts until it is one.
local balancer = require "ngx.balancer"
local semaphore = require "ngx.semaphore"
local repeating = require "repeating"
local now, var = ngx.now, ngx.var

local M = {}
local HELD = 60          -- seconds that a request is held; a fence is shorter
local PATIENCE = 10      -- seconds that an absent gateway is waited for
local BUSY = -3          -- what nginx calls it if there is no upstream, and answers with 502
local SYNCS_MOST = 1000  -- of one connection; then a new one, and the old one's memory is free
local gateway
local routes, valid_until = {}, 0
local in_flight, used, total = {}, {}, 0
local held = 0           -- requests that wait for a fence to end
local has_begun          -- true once the timer that listens next does
local bell               -- rung and replaced at each change, while somebody waits

local function ring()
    local waiting = bell and -bell:count() or 0
    if waiting > 0 then
        bell:post(waiting)
    end
    bell = nil
end

local function wait_for_change(seconds)
    bell = bell or semaphore.new()
    held = held + 1
    bell:wait(seconds)
    held = held - 1
end

-- The answer to a `sync`.
local function counts(number)
    local words = { number }
    for sandbox in pairs(used) do
        words[#words + 1] = sandbox .. "=" .. (in_flight[sandbox] or 0)
    end
    for sandbox, count in pairs(in_flight) do
        if not used[sandbox] then
            words[#words + 1] = sandbox .. "=" .. count
        end
    end
    used = {}
    return table.concat(words, " ") .. "\n"
end

-- Takes what the gateway tells until it goes, or this worker has nothing to tell any more and
-- nobody who waits to hear.
local function listen(sock)
    local told = routes
    for _ = 1, SYNCS_MOST do
        repeat
            local line = sock:receive("*l")
            if not line then
                return
            end
            local word, name, rest = line:match("^(%S+) ?(%S*) ?(.*)$")
            if word == "all" then
                told = {}
            elseif word == "route" then
                local ip, port, sandbox = rest:match("^(%S+) (%d+) (%S+)$")
                told[name] = { ip = ip, port = tonumber(port), sandbox = sandbox }
            elseif word == "held" then
                told[name] = { is_held = true }
            elseif word == "gone" then
                told[name] = nil
            elseif word == "sync" then
                routes, valid_until = told, tonumber(rest)
                ring()
                if not sock:send(counts(name)) then
                    return
                end
            end
        until word == "sync"
        if ngx.worker.exiting() and total + held == 0 then
            return
        end
    end
end

local keep_listening
keep_listening = function()
    has_begun = true
    if ngx.worker.exiting() and total + held == 0 then
        -- what still comes goes to the gateway, which counts it
        routes, valid_until = {}, math.huge
        return
    end
    local sock = ngx.socket.tcp()
    sock:settimeouts(1000, 1000, 4000)
    if sock:connect(gateway.ip, gateway.port) then
        if sock:send("EDGE " .. ngx.worker.pid() .. "\r\n") then
            listen(sock)
        end
        sock:close()
    end
    -- Again by a timer of its own, so that the memory of this one is free. nginx drops a timer for
    -- which it has no room, and takes none with a delay while it ends.
    repeat
        ngx.sleep(0.1)
        has_begun = false
        ngx.timer.at(0, keep_listening)
        ngx.sleep(0.1)
    until has_begun
end

-- Tells this worker where the gateway listens.
function M.init(port)
    gateway = { ip = "127.0.0.1", port = port }
    ngx.timer.at(0, keep_listening)
end

-- For the log: a request is no longer owed an answer.
function M.ended()
    local sandbox = var.app_sandbox
    if sandbox and sandbox ~= "" then
        total = total - 1
        in_flight[sandbox] = in_flight[sandbox] > 1 and in_flight[sandbox] - 1 or nil
    end
end

-- The same before it ends.
local function leave()
    M.ended()
    var.app_sandbox = ""
end

local function count(route)
    local sandbox = route.sandbox
    total = total + 1
    in_flight[sandbox] = (in_flight[sandbox] or 0) + 1
    used[sandbox] = true
    var.app_sandbox = sandbox
end

-- For the access phase. A sandbox that was tried at once, in vain, is not tried again.
function M.route()
    local name, begun, tried = var.app_name, now(), var.app_sandbox
    leave()
    while true do
        local route, age = routes[name], now() - begun
        if now() >= valid_until then
            if age > PATIENCE then
                return
            end
            ngx.sleep(0.1)
        elseif not route or route.sandbox == tried then
            return
        elseif not route.is_held then
            ngx.ctx.route = route
            return count(route)
        elseif age > HELD then
            return ngx.exec("/_edge/away")
        else
            wait_for_change(1)
        end
    end
end

-- For a request that got no answer: what may be sent twice is sent to the gateway, once there is
-- one.
function M.again()
    leave()
    if not repeating.is_safe() then
        return ngx.exec("/_edge/away")
    end
    for _ = 1, PATIENCE * 10 do
        local sock = ngx.socket.tcp()
        sock:settimeouts(1000, 1000, 1000)
        if sock:connect(gateway.ip, gateway.port) then
            return sock:close()
        end
        ngx.sleep(0.1)
    end
end

-- For the balancer of plain requests: the sandbox, or nobody if a request must wait or nobody knows
-- of one. Never the gateway: connections are kept here by address, and one to the gateway leads on
-- to some tenant. A kept connection that was closed is tried again, and counts anew.
function M.balance_at_once()
    if var.app_sandbox ~= "" then
        leave()
    end
    local route = routes[var.app_name]
    if now() >= valid_until or not route or route.is_held then
        return ngx.exit(BUSY)
    end
    count(route)
    balancer.set_current_peer(route.ip, route.port)
end

-- For the balancer: the sandbox first, then the gateway, which counts for itself, or nobody.
function M.balance()
    local route = ngx.ctx.route
    if balancer.get_last_failure() then
        leave()
        if not repeating.may_go_on() then
            return ngx.exit(BUSY)
        end
        route = nil
    end
    if route then
        balancer.set_more_tries(1)
    end
    local peer = route or gateway
    balancer.set_current_peer(peer.ip, peer.port)
end

-- For the head of the answer.
function M.answered()
    if ngx.status == 101 then
        leave()
    end
end

return M
