/* Server data of the open engine that the live feed lacks: last decisions and allowed actions. */

/**
 * One decision as a row of the drawer (web/live/engine_card.py).
 * @typedef {object} DecisionLine
 * @property {string} decision_id
 * @property {number} at
 * @property {string} reason
 * @property {number} prompt_tokens
 * @property {number} predicted_tokens
 * @property {number | null} cached_tokens
 * @property {number} queued_s
 * @property {string} queue_reason
 * @property {string} queue_words
 * @property {number} overtook
 * @property {number | null} ttft_s
 * @property {boolean | null} on_time
 * @property {string} outcome '' while the request runs
 */

/**
 * Health verdict of an engine.
 * @typedef {object} Health
 * @property {string} state
 * @property {string} word
 * @property {string} reason
 * @property {{ clock: string } | null} since
 * @property {string} ends
 * @property {string} share
 * @property {string} evidence
 * @property {boolean} out
 */

/**
 * @typedef {object} EngineCard
 * @property {string} engine_id
 * @property {string} name
 * @property {string} desired_state
 * @property {number} revision
 * @property {boolean} may_operate
 * @property {string} health_verb quarantine, trust, or '' where neither is allowed or has an effect
 * @property {string} pool
 * @property {Health} health
 * @property {string} below lower tiers and their load costs, as sentences; '' for none
 * @property {DecisionLine[] | null} decisions null if no gateway is reachable
 */

/**
 * @typedef {object} Candidate
 * @property {string} engine_id
 * @property {number} hit_tokens
 * @property {number} wait_s
 * @property {number} compute_s
 * @property {number} cost
 */

/**
 * @typedef {object} Outcome
 * @property {string} state
 * @property {string} error
 * @property {number | null} first_token_after_s
 * @property {number | null} cached_tokens
 * @property {boolean | null} on_time
 */

/**
 * @typedef {object} Decision
 * @property {Candidate[]} candidates
 * @property {number} hit_tokens
 * @property {number} prompt_tokens
 * @property {number} queued_s
 * @property {number} overtook
 * @property {number} policy_version
 * @property {string} placement
 * @property {string} order
 * @property {{ engine_id: string, tpot_s: number } | null} [pair]
 */

/**
 * A decision in the words of the gateway's explain API.
 * @typedef {object} Explained
 * @property {Decision} decision
 * @property {Outcome} outcome
 * @property {number} decided_at
 * @property {string} engine_name
 * @property {string} reason_words
 * @property {string} queue_reason_words
 * @property {string} decode_engine_name
 * @property {string} pair_reason_words
 */

const FOLLOW_MS = 2000;

/** Keeps the card of one engine fresh while it is open; calls onCard(card | null, failure). */
export class EngineCardFeed {
  /** @param {(card: EngineCard | null, failure: string) => void} onCard */
  constructor(onCard) {
    this.onCard = onCard;
    this.engineId = '';
    /** @type {EngineCard | null} */
    this.card = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** @type {AbortController | null} */
    this.request = null;
    document.addEventListener('visibilitychange', () => !document.hidden && this.refresh());
  }

  /**
   * Follow another engine; '' for none.
   * @param {string} engineId
   */
  follow(engineId) {
    if (engineId === this.engineId) return;
    this.engineId = engineId;
    this.card = null;
    this.refresh();
  }

  /** Fetch the card now. */
  async refresh() {
    clearTimeout(this.timer);
    this.request?.abort();
    const { engineId } = this;
    if (!engineId) return;
    const request = (this.request = new AbortController());
    try {
      const answer = await fetch(`/fleet/engines/${encodeURIComponent(engineId)}`, {
        signal: request.signal,
        headers: { Accept: 'application/json' },
      });
      if (engineId !== this.engineId) return;
      if (answer.status === 404) this.#report(null, 'This engine does not exist, or you have no access to its pool.');
      else if (!answer.ok || answer.redirected)
        this.#report(null, `The server answered ${answer.redirected ? 'with its login page' : answer.status}.`);
      else this.#report(await answer.json(), '');
    } catch {
      if (request.signal.aborted) return;
      this.#report(this.card, 'The server does not answer; showing the last known state.');
    }
    if (engineId === this.engineId && !document.hidden) this.timer = setTimeout(() => this.refresh(), FOLLOW_MS);
  }

  /**
   * @param {EngineCard | null} card
   * @param {string} failure
   */
  #report(card, failure) {
    this.card = card;
    this.onCard(card, failure);
  }
}

/**
 * Fetch one decision in full; rejects with an error for the operator.
 * @param {string} decisionId
 */
export async function fetchDecision(decisionId) {
  const answer = await fetch(`/fleet/decisions/${encodeURIComponent(decisionId)}`, {
    headers: { Accept: 'application/json' },
  });
  if (answer.status === 404) throw new Error('Neither the gateways nor the request log have this decision.');
  if (!answer.ok || answer.redirected)
    throw new Error(`The server answered ${answer.redirected ? 'with its login page' : answer.status}.`);
  return answer.json();
}

/**
 * Request another state of an engine; resolves to {message} or {error}.
 * @param {string} engineId
 * @param {FormData} form
 */
export async function askState(engineId, form) {
  const answer = await fetch(`/fleet/engines/${encodeURIComponent(engineId)}/state`, {
    method: 'POST',
    body: form,
    headers: { Accept: 'application/json' },
  });
  try {
    return await answer.json();
  } catch {
    return {
      error: answer.status === 403 ? 'The form has expired. Reload the page.' : `The server answered ${answer.status}.`,
    };
  }
}
