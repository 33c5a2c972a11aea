/* The page of the example chat: it calls its own backend, and advise.js announces the request while the user types. */
const byId = (id) => document.getElementById(id);
const session = crypto.randomUUID();
const text = byId('text');
byId('session').textContent = session;

const post = async (path, body) => {
  const answer = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};

let minted = null;
const token = async () => {
  if (!minted || minted.until < Date.now()) {
    minted = { ...(await post('/token', { session })), until: Date.now() + 600_000 };
  }
  return minted.token;
};

window.headwayAdvise(text, { url: `${document.body.dataset.gateway}/api/v1/advisories`, token });
// Ready before the first key is pressed.
token().catch(() => undefined);

const words = (state) => {
  if (state.state === 'prefetching') return 'The gateway is moving this conversation’s KV cache…';
  if (state.state === 'reserved' && state.moved_blocks) {
    return `${state.moved_blocks} KV blocks are on the node of the engine that will answer.`;
  }
  if (state.state === 'reserved') return 'An engine is reserved; nothing was moved.';
  return 'No advisory yet.';
};
const show = async () => {
  const state = await post('/state', { session }).catch(() => null);
  if (state) {
    byId('state').textContent = words(state);
    byId('state').dataset.state = state.state;
    byId('state').dataset.moved = String(state.moved_blocks ?? 0);
  }
};
setInterval(() => void show(), 500);

const add = (kind, content, note) => {
  const item = document.createElement('li');
  item.className = kind;
  item.textContent = content;
  if (note) {
    const small = document.createElement('small');
    small.textContent = note;
    item.append(small);
  }
  byId('turns').append(item);
};

byId('ask').addEventListener('submit', async (event) => {
  event.preventDefault();
  const question = text.value.trim();
  if (!question) return;
  text.value = '';
  add('question', question);
  try {
    const answer = await post('/ask', { session, question });
    add('answer', answer.text, answer.note);
  } catch {
    add('answer', 'The gateway did not answer; try again.');
  }
});
