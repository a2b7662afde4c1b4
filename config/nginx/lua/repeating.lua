-- Says which requests may be sent a second time, and has them wait for a process that was killed and
-- is about to be back.
local M = {}
local var, get_method = ngx.var, ngx.req.get_method
local SAFE = { GET = true, HEAD = true, OPTIONS = true }
local PATIENCE = 100     -- times a tenth of a second, so that a busy machine can start it

-- True if the answer is the same however often it is sent.
function M.is_safe()
    return SAFE[get_method()] and not var.http_content_length and not var.http_transfer_encoding
end

-- For the access phase of what nobody answered: goes on once somebody listens there, or is 503. It
-- is sent again if it is safe, or was not sent at all and has no body, which would be gone.
function M.wait_for(address)
    local host, port = address:match("^%[?(.-)%]?:(%d+)$")
    local length = var.http_content_length or "0"
    local unsent = length == "0" and not var.http_transfer_encoding
                   and var.upstream_bytes_sent == "0"
    if not unsent and not M.is_safe() then
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
