// Sends each request to the engine that Headway chooses, and reports each answer's progress to the agent.
// For njs 0.7.9 (Debian 12) and later. The variables are declared in nginx.conf.
// njs runs what is outside of functions three times per request, so it builds nothing: literals are compiled once.

// A body field that controls an engine, or escapes of ASCII letters, with which its name might be written. Two expressions,
// each of which begins with one letter: such a search passes over a long body in microseconds.
const OWNED = /"(?:cache_salt|priority|request_id|rid|(?:kv|ec)_transfer_params|(?:data_parallel|routed_dp|disagg_prefill_dp)_rank|bootstrap_(?:host|port|room)|extra_key|lora_path|session_params|input_ids|custom_logit_processor|logits_processors|kv_cache_report_mode)"/;
const ESCAPED = /\\u00[4-7]/;
const TAIL = 4096;
const UNAVAILABLE = '{"error":{"message":"No engine can be chosen; retry.","type":"server_error",' +
    '"code":"no_decision","param":null}}';

function authorization() {
    return 'Bearer ' + process.env.HEADWAY_API_KEY;
}

async function route(r) {
    const body = r.requestText;
    if (body === undefined) {
        r.return(400);
        return;
    }
    r.variables.headway_bearer = authorization();
    // The subrequest has the client's unchanged body.
    const reply = await r.subrequest('/_headway/route', {method: 'POST'});
    if (reply.status === 200) {
        follow(r, body, JSON.parse(reply.responseText));
    } else if (reply.status === 409) {
        failOpen(r, body, 'observes');
    } else if (reply.status < 500 || (reply.responseText || '').includes('"no_engine"')) {
        reject(r, reply);
    } else {
        failOpen(r, body, reply.status === 504 ? 'late' : reply.status === 502 ? 'down' : 'error');
    }
}

function follow(r, body, decision) {
    const address = /^http:\/\/([^\/]+)\/?$/.exec(decision.engine.url);
    if (!address) {
        r.error('headway: engine ' + decision.engine.id + ' has no plain http address');
        unavailable(r);
        return;
    }
    r.variables.headway_outcome = 'decided';
    r.variables.headway_decision = decision.decision_id;
    r.variables.headway_engine = decision.engine.id;
    r.variables.headway_address = address[1];
    r.variables.headway_rank = decision.engine.rank === undefined ? '' : String(decision.engine.rank);
    forward(r, body, decision.body, '@headway_engine');
}

// Sends the body unchanged if nothing in it has to change.
function forward(r, body, ours, location) {
    let text = body;
    if (OWNED.test(body) || ESCAPED.test(body)) {
        let fields;
        try {
            fields = JSON.parse(body);
        } catch (e) {
            r.return(400);
            return;
        }
        Object.keys(fields).filter((name) => OWNED.test('"' + name + '"')).forEach((name) => delete fields[name]);
        text = JSON.stringify(Object.assign(fields, ours));
    } else {
        const added = JSON.stringify(ours);
        if (added !== '{}') {
            text = body.slice(0, body.lastIndexOf('}')) + ',' + added.slice(1);
        }
    }
    if (text === body) {
        r.internalRedirect(location);
    } else {
        r.variables.headway_body = text;
        r.internalRedirect(location + '_with_body');
    }
}

function reject(r, reply) {
    r.variables.headway_outcome = 'rejected';
    r.variables.headway_decision = reply.headersOut['X-Headway-Decision'] || '';
    ['Retry-After', 'Content-Type', 'WWW-Authenticate', 'X-Llm-D-Request-Dropped-Reason'].forEach((name) => {
        if (reply.headersOut[name]) {
            r.headersOut[name] = reply.headersOut[name];
        }
    });
    r.return(reply.status, reply.responseText);
}

// Headway is down, late, or only observes: rotate through the pool's engines.
function failOpen(r, body, reason) {
    let fields;
    try {
        fields = JSON.parse(body);
    } catch (e) {
        r.return(400);
        return;
    }
    r.variables.headway_model = String(fields.model);
    // Without a decision there is no salt to replace the client's.
    if (!r.variables.headway_pool || fields.cache_salt !== undefined) {
        unavailable(r);
        return;
    }
    r.variables.headway_outcome = 'failed_open_' + reason;
    forward(r, body, {}, '@headway_fail_open');
}

function unavailable(r) {
    r.variables.headway_outcome = 'unavailable';
    r.headersOut['Retry-After'] = '1';
    r.headersOut['Content-Type'] = 'application/json';
    r.return(503, UNAVAILABLE);
}

const CONTENT = new RegExp(
    '"(?:content|reasoning_content|reasoning|refusal|text|arguments|name|finish_reason)"\\s*:\\s*"[^"]|(?:^|\\n)event: ?\\S*delta');
const ERROR = /(?:^|\n)(?:data: ?\{\s*"(?:error"\s*:\s*[{"]|object"\s*:\s*"error)|event: ?(?:error|\S+\.failed))/;
const ERROR_BODY = /^\s*\{\s*"error"\s*:\s*[{"]/;

let first = true;
let failed = false;
let unstreamed = false;
let tail = '';

// Sees each part of an engine's answer: reports the first token at once, and keeps the usage from the last part.
// The first token of a stream is its first content, not a comment or an event that announces the answer. The tokens of an
// answer that is no stream come together: their report waits until the client has them. An error in place of an answer is
// neither, whatever its status is.
function watch(r, data, flags) {
    if (data.length && first && !failed) {
        const text = tail + data.toString();
        unstreamed = /^\s*\{/.test(text);
        failed = unstreamed ? ERROR_BODY.test(text) : ERROR.test(text);
        if (!unstreamed && !failed && CONTENT.test(text)) {
            reportFirst(r);
        }
    }
    tail = (tail + data.slice(-TAIL).toString()).slice(-TAIL);
    if (flags.last || tail.includes('data: [DONE]')) {
        if (unstreamed && first && !failed) {
            reportFirst(r);
        }
        const read = count('cache_read_input_tokens');  // Anthropic's input_tokens leave them out
        const prompt = count('prompt_tokens') || count('input_tokens');
        r.variables.headway_whole = failed ? 'error' : '1';
        r.variables.headway_cached_tokens = count('cached_tokens') || read;
        r.variables.headway_output_tokens = count('completion_tokens') || count('output_tokens');
        r.variables.headway_prompt_tokens = prompt && String(Number(prompt) + Number(read));
    }
    r.sendBuffer(data, flags);
}

function reportFirst(r) {
    first = false;
    // Lists every address that was tried; the last one answers.
    if (r.status < 400 && r.variables.upstream_addr.split(', ').pop() === r.variables.headway_address) {
        r.log('headway first_token ' + r.variables.headway_decision);
    }
}

function count(name) {
    const found = tail.lastIndexOf('"' + name + '":');
    const number = found < 0 ? null : /^\s*(\d{1,9})/.exec(tail.slice(found + name.length + 3));
    return number ? number[1] : '';
}

export default {authorization, route, watch};
