/* What the server knows of the engine in the drawer beside the live feed: last decisions, and what may be done. */

const FOLLOW_MS = 2000;

/** Keeps the card of one engine fresh while it is open; calls onCard(card | null, failure). */
export class EngineCardFeed {
  constructor(onCard) {
    this.onCard = onCard;
    this.engineId = '';
    document.addEventListener('visibilitychange', () => !document.hidden && this.refresh());
  }

  /** Follow another engine; '' none. */
  follow(engineId) {
    if (engineId === this.engineId) return;
    this.engineId = engineId;
    this.card = null;
    this.refresh();
  }

  /** Ask now. */
  async refresh() {
    clearTimeout(this.timer);
    this.request?.abort();
    const { engineId } = this;
    if (!engineId) return;
    const request = (this.request = new AbortController());
    try {
      const answer = await fetch(`/fleet/engines/${encodeURIComponent(engineId)}`, { signal: request.signal, headers: { Accept: 'application/json' } });
      if (engineId !== this.engineId) return;
      if (answer.status === 404) this.#tell(null, 'This engine is not registered here, or not in a pool you may see.');
      else if (!answer.ok || answer.redirected) this.#tell(null, `The server answered ${answer.redirected ? 'with its login page' : answer.status}.`);
      else this.#tell(await answer.json(), '');
    } catch (error) {
      if (error.name === 'AbortError') return;
      this.#tell(this.card, 'The server does not answer; what stands here is the last known.');
    }
    if (engineId === this.engineId && !document.hidden) this.timer = setTimeout(() => this.refresh(), FOLLOW_MS);
  }

  #tell(card, failure) {
    this.card = card;
    this.onCard(card, failure);
  }
}

/** The whole story of one decision; rejects with words that say what happened. */
export async function fetchDecision(decisionId) {
  const answer = await fetch(`/fleet/decisions/${encodeURIComponent(decisionId)}`, { headers: { Accept: 'application/json' } });
  if (answer.status === 404) throw new Error('This decision is no longer in memory; the gateway keeps the last 20,000.');
  if (!answer.ok || answer.redirected) throw new Error(`The server answered ${answer.redirected ? 'with its login page' : answer.status}.`);
  return answer.json();
}

/** Ask for another state of an engine; resolves to {message} or {error}. */
export async function askState(engineId, form) {
  const answer = await fetch(`/fleet/engines/${encodeURIComponent(engineId)}/state`, { method: 'POST', body: form, headers: { Accept: 'application/json' } });
  try {
    return await answer.json();
  } catch {
    return { error: answer.status === 403 ? 'The form has expired; load this page again.' : `The server answered ${answer.status}.` };
  }
}
