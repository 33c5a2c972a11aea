-- Sends each request to the engine that Headway chooses, fails open if there is no answer, and reports on answers.
-- HAProxy 2.6 or later. Load it with lua-load, not with lua-load-per-thread: all threads share its state.
-- Environment: HEADWAY_URL; HEADWAY_API_KEY (scope route); HEADWAY_ENGINES: engines to fall back on before any
-- decision has named one, as "model=http://10.0.0.1:8000,http://10.0.0.2:8000;other=http://…".

local URL = os.getenv("HEADWAY_URL") or "http://127.0.0.1:8000"
local KEY = os.getenv("HEADWAY_API_KEY") or ""
local LATE_MS = tonumber(os.getenv("HEADWAY_LATE_MS") or "1000") -- an answer that takes longer fails open
local BACKEND = "headway" -- its health decides whether to ask at all
local AWAY_S = 2 -- pause of questions after a late answer
local AVOIDED_S = 10 -- how long an engine that failed gets no fallback traffic
local KNOWN_S = 600 -- how long an engine is kept that its model's decisions do not name any more
local MAX_KNOWN = 1024 -- models, and engines of each
local TAIL = 4096
-- Fields with which a body controls an engine. HAProxy cannot remove them, so it rejects such requests. It finds a name at
-- any depth, so "priority" and "request_id", which tools use as well, are not here.
local OWNED = { "cache_salt", "rid", "kv_transfer_params", "ec_transfer_params", "data_parallel_rank", "routed_dp_rank",
                "disagg_prefill_dp_rank", "bootstrap_host", "bootstrap_port", "bootstrap_room", "extra_key", "lora_path",
                "session_params", "input_ids", "custom_logit_processor", "logits_processors", "kv_cache_report_mode" }
local HEADERS = { ["authorization"] = { "Bearer " .. KEY }, ["content-type"] = { "application/json" } }

-- What a client states about itself (docs/requests.md).
local CLIENT = {
    "x-session-id", "x-parent-session-id", "x-dynamo-session-id", "x-dynamo-parent-session-id",
    "x-claude-code-session-id", "x-claude-code-parent-agent-id", "x-claude-code-agent-id", "session-id",
    "x-codex-parent-thread-id", "thread-id", "x-session-affinity", "x-agent", "x-workflow-id",
    "x-headway-slo-class", "x-llm-d-inference-objective", "x-gateway-inference-objective", "x-headway-ttft-slo-ms",
    "x-llm-d-slo-ttft-ms", "x-sgl-ttft-slo-ms", "x-headway-tpot-slo-ms", "x-llm-d-slo-tpot-ms",
    "x-headway-cache-hint", "traceparent", "tracestate" }
-- What the client gets of a rejection.
local PASSED_ON = { "retry-after", "www-authenticate", "x-llm-d-request-dropped-reason" }

local function first(headers, name)
    return (headers[name] or {})[0]
end

local function headers_for(txn) -- how the body is to be read, and for whom
    local client, sent = txn.http:req_get_headers(), { ["x-original-uri"] = { txn.sf:path() }, ["x-headway-door"] = { "haproxy" } }
    for name, values in pairs(HEADERS) do sent[name] = values end
    for _, name in ipairs(CLIENT) do
        local value = first(client, name)
        if value then sent[name] = { value } end
    end
    local key = first(client, "x-api-key")
    local authorization, id = first(client, "authorization") or (key and "Bearer " .. key), first(client, "x-request-id")
    if authorization then sent["x-headway-client-authorization"] = { authorization } end
    if id and #id <= 128 and id:find("^[!-~]+$") then
        sent["x-headway-client-request-id"] = { id }
        txn:set_var("txn.headway_request_id", id)
    end
    return sent
end

local known = {}   -- model -> { newest = seconds, engines = { address -> seconds }, salted = boolean }
local avoided = {} -- address -> seconds until which it gets no fallback traffic
local away_until = 0
local turn = 0
local fail_opens = { down = 0, late = 0, error = 0, observes = 0, away = 0 }
local requests = { decided = 0, rejected = 0, unavailable = 0 }
local reports = { sent = 0, lost = 0 }

local function now()
    return core.now().sec
end

local function address_of(url)
    local host, port = url:match("^http://%[?([%d%.a-fA-F:]+)%]?:(%d+)/?$")
    return host, tonumber(port)
end

local function count_of(entries)
    local count = 0
    for _ in pairs(entries) do count = count + 1 end
    return count
end

local function remember(model, url)
    local entry = known[model]
    if not entry then
        if count_of(known) >= MAX_KNOWN then return {} end
        entry = { engines = {}, newest = 0 }
        known[model] = entry
    end
    if entry.engines[url] or count_of(entry.engines) < MAX_KNOWN then entry.engines[url] = now() end
    entry.newest = now()
    return entry
end

for model, urls in (os.getenv("HEADWAY_ENGINES") or ""):gmatch("([^=;]+)=([^;]+)") do
    known[model] = { engines = {}, newest = 0 }
    for url in urls:gmatch("[^,]+") do known[model].engines[url] = 0 end
end

-- Reports are sent in separate tasks, so an answer never waits for them. Reports of one request are sent in order.
local function post_reports(course)
    while #course.queue > 0 do
        local report = table.remove(course.queue, 1)
        local reply = core.httpclient():post({
            url = URL .. "/api/v1/requests/" .. course.decision .. "/" .. report.verb,
            headers = HEADERS, body = report.body, timeout = 5000 })
        local result = reply and reply.status == 200 and "sent" or "lost"
        reports[result] = reports[result] + 1
    end
    course.posting = false
end

local function tell(course, verb, body)
    course.queue[#course.queue + 1] = { verb = verb, body = body or "{}" }
    if not course.posting then
        course.posting = true
        core.register_task(function() post_reports(course) end)
    end
end

local function answer(txn, status, body, headers)
    local reply = txn:reply({ status = status, body = body })
    reply:add_header("content-type", "application/json")
    for name, value in pairs(headers) do reply:add_header(name, value) end
    txn:done(reply)
end

local function name_decision(txn, id)
    txn:set_var("txn.headway_decision_id", id)
    if not txn:get_var("txn.headway_request_id") then txn:set_var("txn.headway_request_id", id) end
end

local function reject(txn, status, code, message, retry_after)
    requests.unavailable = requests.unavailable + 1
    answer(txn, status, '{"error":{"message":"' .. message .. '","type":"server_error","code":"' .. code ..
        '","param":null}}', { ["retry-after"] = retry_after })
end

local function send_to(txn, url)
    local host, port = address_of(url)
    if not host then
        return reject(txn, 503, "no_address", "The engine's URL has no IP address and port.", "1")
    end
    txn:set_var("txn.headway_host", host)
    txn:set_var("txn.headway_port", port)
    txn:set_var("txn.headway_url", url)
end

local function fail_open(txn, model, reason)
    local entry = known[model]
    local sound, all = {}, {}
    for url, seen in pairs(entry and not entry.salted and entry.engines or {}) do
        if entry.newest - seen <= KNOWN_S then
            all[#all + 1] = url
            if (avoided[url] or 0) <= now() then sound[#sound + 1] = url end
        end
    end
    local urls = #sound > 0 and sound or all
    if #urls == 0 then
        return reject(txn, 503, "no_decision", "Headway does not answer; retry.", "1")
    end
    table.sort(urls)
    turn = turn + 1
    fail_opens[reason] = fail_opens[reason] + 1
    send_to(txn, urls[turn % #urls + 1])
end

local function decided(txn, model, body)
    local id = body:match('^{"decision_id":"([%w-]+)"')
    local url = body:match('"url":"([^"]+)"')
    local engine = body:match('"engine":(%b{})') or ""
    local ours = body:match('"body":(%b{})') or "{}"
    if not id or not url then return fail_open(txn, model, "error") end
    local entry = remember(model, url)
    if ours:find('"cache_salt"', 1, true) then
        -- HAProxy cannot put the salt into the body, and without it tenants would share their caches.
        entry.salted = true
        tell({ decision = id, queue = {} }, "cancel")
        return reject(txn, 501, "isolated_pool", "HAProxy cannot serve a pool that isolates tenants.")
    end
    if ours:find('"model"', 1, true) then
        entry.salted = true
        -- Nor the name that the engine gives the model of a service.
        tell({ decision = id, queue = {} }, "cancel")
        return reject(txn, 501, "named_service", "HAProxy cannot rename a model; send the served model's name.")
    end
    requests.decided = requests.decided + 1
    txn:set_var("txn.headway_decision", id)
    name_decision(txn, id)
    local rank = engine:match('"rank":(%d+)')
    if rank then txn:set_var("txn.headway_rank", rank) end
    send_to(txn, url)
end

local function decide(txn)
    local body = txn.sf:req_body() or ""
    if txn.f:req_body_size() > #body then
        return reject(txn, 413, "body_too_large", "The body is larger than tune.bufsize.")
    end
    for _, name in ipairs(OWNED) do
        if body:find('"' .. name .. '"', 1, true) then
            return reject(txn, 400, "bad_field", "The field " .. name .. " is not for clients.")
        end
    end
    if body:find('"[%w_\\]*\\u00[4-7]%x[%w_\\]*"%s*:') then
        return reject(txn, 400, "bad_field", "Write the names of fields without escapes.")
    end
    local model = txn.c:json_query(body, "$.model") or ""
    if txn.f:nbsrv(BACKEND) == 0 then return fail_open(txn, model, "down") end
    if now() < away_until then return fail_open(txn, model, "away") end
    local reply = core.httpclient():post({ url = URL .. "/api/v1/route?wait=false", body = body, timeout = LATE_MS,
                                           headers = headers_for(txn) })
    local status = reply and reply.status or 0
    local said = reply and reply.body or ""
    if status == 200 then return decided(txn, model, said) end
    if status == 409 then return fail_open(txn, model, "observes") end
    if status == 0 or (status >= 500 and said:sub(1, 1) ~= "{") then
        -- HAProxy's own error, not Headway's, which is JSON.
        away_until = now() + AWAY_S
        return fail_open(txn, model, (status == 0 or status == 504) and "late" or "down")
    end
    if status < 500 or said:find('"no_engine"', 1, true) then
        requests.rejected = requests.rejected + 1
        local id, passed = first(reply.headers, "x-headway-decision"), {}
        for _, name in ipairs(PASSED_ON) do passed[name] = first(reply.headers, name) end
        if id then name_decision(txn, id) end
        return answer(txn, status, said, passed)
    end
    fail_open(txn, model, "error")
end

core.register_action("headway", { "http-req" }, decide, 0)

local function count_in(tail, names)
    for _, name in ipairs(names) do
        local count = tail:match('.*"' .. name .. '"%s*:%s*(%d+)')
        if count then return tonumber(count) end
    end
end

local function usage_in(tail)
    local read = count_in(tail, { "cache_read_input_tokens" })
    local prompt = count_in(tail, { "prompt_tokens", "input_tokens" })
    local counts = {
        cached_tokens = count_in(tail, { "cached_tokens" }) or read,
        output_tokens = count_in(tail, { "completion_tokens", "output_tokens" }),
        prompt_tokens = prompt and prompt + (read or 0), -- Anthropic's input_tokens leave out what was read
    }
    local parts = {}
    for name, count in pairs(counts) do parts[#parts + 1] = string.format('"%s":%d', name, count) end
    return "{" .. table.concat(parts, ",") .. "}"
end

local CONTENT = { "content", "reasoning_content", "reasoning", "refusal", "text", "arguments", "name", "finish_reason" }

-- The first token of a stream is its first content, not a comment or an event that announces the answer.
local function has_content(seen)
    if seen:find("\nevent: ?[^\n]*delta") then return true end
    for _, name in ipairs(CONTENT) do
        if seen:find('"' .. name .. '"%s*:%s*"[^"]') then return true end
    end
    return false
end

-- An error in place of an answer, whatever its status is.
local function is_error(seen, unstreamed)
    if unstreamed then return seen:find('^%s*{%s*"error"%s*:%s*[{"]') ~= nil end
    return (seen:find('\ndata: ?{%s*"error"%s*:%s*[{"]') or seen:find('\ndata: ?{%s*"object"%s*:%s*"error')
        or seen:find("\nevent: ?error") or seen:find("\nevent: ?[^%s]+%.failed")) ~= nil
end

local Course = { id = "headway", flags = filter.FLT_CFG_FL_HTX }
Course.__index = Course

function Course:new()
    return setmetatable({ tail = "", queue = {} }, Course)
end

function Course:start_analyze(txn, channel)
    if channel:is_resp() then filter.register_data_filter(self, channel) end
end

function Course:http_payload(txn, message)
    if not message.channel:is_resp() then return end
    self.decision = self.decision or txn:get_var("txn.headway_decision")
    local data = message:body()
    if not self.decision or not data or #data == 0 then return end
    self.unstreamed = self.unstreamed or (self.tail == "" and data:find("^%s*{") ~= nil)
    if not self.begun and not self.failed and (txn:get_var("txn.headway_status") or 200) < 400 then
        local seen = "\n" .. self.tail .. data
        self.failed = is_error(seen, self.unstreamed)
        if not self.failed and (self.unstreamed or has_content(seen)) then
            self.begun = true
            tell(self, "first_token")
        end
    end
    self.tail = (self.tail .. data):sub(-TAIL)
end

function Course:http_end(txn, message)
    if message.channel:is_resp() then self.whole = true end
end

function Course:end_analyze(txn, channel)
    if not channel:is_resp() or self.ended then return end
    self.ended = true
    self.decision = self.decision or txn:get_var("txn.headway_decision")
    local status = txn:get_var("txn.headway_status")
    local url = txn:get_var("txn.headway_url")
    if status and status >= 500 and url then avoided[url] = now() + AVOIDED_S end
    if not self.decision then return end
    if status and status >= 500 then
        tell(self, url and "fail" or "cancel")
    elseif status and status < 400 and self.failed then
        tell(self, "fail")
    elseif status and status < 400 and (self.whole or self.tail:find("data: [DONE]", 1, true)) then
        tell(self, "complete", usage_in(self.tail))
    else
        -- HAProxy's filters do not reveal whether the client broke off an answer; only probes may judge the engine.
        tell(self, "cancel")
    end
end

core.register_filter("headway", Course, function(course, arguments) return course end)

local function rows(name, label, counts)
    local lines = { "# TYPE headway_haproxy_" .. name .. "_total counter\n" }
    for value, count in pairs(counts) do
        lines[#lines + 1] = string.format('headway_haproxy_%s_total{%s="%s"} %d\n', name, label, value, count)
    end
    return table.concat(lines)
end

core.register_service("headway_metrics", "http", function(applet)
    local text = rows("requests", "outcome", requests) .. rows("fail_open", "reason", fail_opens) ..
        rows("reports", "result", reports)
    applet:set_status(200)
    applet:add_header("content-type", "text/plain; version=0.0.4")
    applet:add_header("content-length", tostring(#text))
    applet:start_response()
    applet:send(text)
end)
