-- Says which requests may be sent a second time, and has them wait for a process that was killed and
-- is about to be back.
local M = {}
local var = ngx.var
local PATIENCE = 100     -- times a tenth of a second, so that a busy machine can start it

-- True if the answer is the same however often it is sent.
function M.is_safe()
    return var.is_safe ~= ""
end

-- True if nobody has got a byte of it yet: connecting is all that was tried.
local function is_unsent()
    return not var.upstream_bytes_sent:find("[1-9]")
end

-- For a balancer whose first peer has failed: true if another may be tried.
function M.may_go_on()
    return M.is_safe() or is_unsent()
end

-- True if there is no body. Over HTTP/2 one may have no length; then its type tells it from none.
local function is_bodiless()
    local length = var.http_content_length
    if length or var.http_transfer_encoding then
        return length == "0"
    end
    return var.server_protocol:find("^HTTP/1") or not var.content_type
           and var.request_method ~= "PUT"
end

-- For the access phase of what nobody answered: goes on once somebody listens there, or is 503. It
-- is sent again if it is safe, or was not sent at all and has no body, which would be gone.
function M.wait_for(address)
    local host, port = address:match("^%[?(.-)%]?:(%d+)$")
    if not M.is_safe() and not (is_bodiless() and is_unsent()) then
        return ngx.exit(503)
    end
    for _ = 1, PATIENCE do
        local sock = ngx.socket.tcp()
        sock:settimeouts(1000, 1000, 1000)
        local connected, problem = sock:connect(host, tonumber(port))
        if connected then
            return sock:close()
        elseif problem ~= "connection refused" then
            return
        end
        ngx.sleep(0.1)
    end
end

return M
