/* The last decisions of an engine, their mean times, and one decision in full. */

import { fetchDecision } from './engine_card.js';
import { NARROW, clock, count, duration, percent, whole } from '../../shell/format.js';
import { byId, icon, make, required, setText } from '../../shell/element.js';
/** @import { View } from '../view.js' */
/** @import { DecisionLine, EngineCard, Explained, Outcome } from './engine_card.js' */

const SHOWN = 6;

/**
 * Time of day with tenths, as decisions need it.
 * @param {number} at
 */
export const clockTenths = (at) => clock(at).replace(/(:\d\d)(\D*)$/, `$1.${Math.floor((at % 1) * 10)}$2`);

/**
 * Return the mean TTFT in parts: {queue, engine, count}; null without a first token.
 * @param {DecisionLine[]} decisions
 */
export function timeSpent(decisions) {
  const known = decisions.flatMap((decision) =>
    decision.ttft_s === null ? [] : [{ queued: decision.queued_s, ttft: decision.ttft_s }],
  );
  if (!known.length) return null;
  /** @param {(time: { queued: number, ttft: number }) => number} read */
  const mean = (read) => known.reduce((sum, time) => sum + read(time), 0) / known.length;
  const queue = mean((time) => Math.min(time.queued, time.ttft));
  return { queue, engine: mean((time) => time.ttft) - queue, count: known.length };
}

/**
 * Return the parts of a decision's panel: title, sentences, candidates [{name, chosen, hit, wait, compute, cost}].
 * @param {Explained} explained
 * @param {(engineId: string) => string} nameOf
 */
export function decisionStory(explained, nameOf) {
  const { decision, outcome } = explained;
  const [chosen, other] = decision.candidates;
  const hit = decision.hit_tokens
    ? `${whole(decision.hit_tokens)} of ${count(decision.prompt_tokens, 'prompt token')} expected cached`
    : `${count(decision.prompt_tokens, 'prompt token')}, none expected cached`;
  const beside =
    chosen && other && other.engine_id !== chosen.engine_id && other.cost > chosen.cost
      ? ` ${nameOf(other.engine_id)} came second, with a cost of ${other.cost.toFixed(2)}` +
        ` against ${chosen.cost.toFixed(2)}.`
      : '';
  const waited =
    decision.queued_s > 0.0005
      ? `The request waited ${duration(decision.queued_s)} at the gateway${queueWords(explained)}.`
      : 'The request was dispatched at once.';
  return {
    title: `Sent to ${explained.engine_name || 'no engine'}: ${explained.reason_words}.`,
    why: `${hit}.${beside}${pairWords(explained)}`,
    happened: `${waited} ${outcomeWords(outcome)}`,
    candidates: decision.candidates.map((candidate, index) => ({
      name: nameOf(candidate.engine_id),
      chosen: index === 0,
      hit: whole(candidate.hit_tokens),
      wait: duration(candidate.wait_s),
      compute: duration(candidate.compute_s),
      cost: candidate.cost.toFixed(2),
    })),
  };
}

/**
 * Return the decode engine and its reason; '' if one engine prefills and decodes.
 * @param {Explained} explained
 */
function pairWords({ decision: { pair }, decode_engine_name: name, pair_reason_words: words }) {
  if (!pair) return '';
  return ` ${name || pair.engine_id} answers: ${words}; ${duration(pair.tpot_s)} per token expected.`;
}

/**
 * Return the dispatch reason: "; it overtook 2 older queued requests, because it was the shortest …".
 * '' if unknown.
 * @param {Explained} explained
 */
function queueWords({ decision, queue_reason_words: words }) {
  if (!words) return '';
  const passed =
    decision.overtook > 0 ? `it overtook ${count(decision.overtook, 'older request')}` : 'it was dispatched next';
  return `; ${passed}, because ${words}`;
}

/** @param {Outcome} outcome */
function outcomeWords(outcome) {
  const first =
    outcome.first_token_after_s === null
      ? ''
      : `First token after ${duration(outcome.first_token_after_s)}${outcome.on_time ? '' : ', late'}. `;
  const cached = outcome.cached_tokens === null ? '' : `The engine reported ${whole(outcome.cached_tokens)} cached. `;
  /** @type {Record<string, string>} */
  const end = {
    running: 'It is running.',
    completed: '',
    failed: `It failed (${outcome.error}).`,
    rejected: `It was rejected (${outcome.error}).`,
    cancelled: 'The client disconnected.',
    client_error: `The engine rejected it (${outcome.error}).`,
  };
  return `${first}${cached}${end[outcome.state] ?? outcome.state}`.trim();
}

export class DrawerDecisions {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.body = required(byId('drawer-decisions'), 'tbody');
    this.story = byId('drawer-story');
    /** @type {Map<string, string>} Names by engine id. */
    this.names = new Map();
    this.key = '';
    this.asked = '';
    /** @type {Element | null} Element focused before the panel opened. */
    this.from = null;
    byId('drawer-story-close').addEventListener('click', () => view.closeDecision());
  }

  /** Reset for an engine just opened. */
  clear() {
    this.key = '';
    this.#close();
    this.show(null, '', 'Loading…');
  }

  /**
   * @param {EngineCard | null} card
   * @param {string} failure
   */
  show(card, failure, none = 'No requests were routed to this engine since Headway started.') {
    const decisions = card?.decisions ?? [];
    const key = JSON.stringify([decisions.slice(0, SHOWN), failure, card === null, card?.decisions === null, none]);
    if (key === this.key) return;
    this.key = key;
    this.#spent(decisions);
    const words =
      failure ||
      (card?.decisions === null ? 'No gateway is reachable. Recent decisions appear when one reconnects.' : none);
    byId('drawer-decisions').hidden = !decisions.length;
    setText(byId('drawer-decisions-none'), decisions.length && !failure ? '' : words);
    this.body.replaceChildren(...decisions.slice(0, SHOWN).map((decision) => this.#line(decision)));
  }

  /** @param {DecisionLine} decision */
  #line(decision) {
    const open = make('button', 'row-button', clockTenths(decision.at));
    open.type = 'button';
    open.setAttribute('aria-label', `Decision at ${clockTenths(decision.at)}: reason`);
    const ttft = make(
      'td',
      'number',
      ...(decision.ttft_s === null ? [decision.outcome === '' ? '…' : '—'] : [duration(decision.ttft_s)]),
    );
    if (decision.on_time === false) {
      ttft.prepend(icon('s-lost', 'shape shape-lost'));
      ttft.classList.add('late');
      ttft.title = 'late';
    }
    const hit = make('td', 'number', whole(decision.predicted_tokens));
    hit.title =
      decision.cached_tokens === null
        ? 'expected; the engine has not reported yet'
        : `expected; the engine reported ${whole(decision.cached_tokens)}`;
    const reason = make('td', 'reason', decision.reason);
    if (decision.queue_reason) {
      reason.append(make('span', 'sub', decision.queue_reason));
      const overtook = decision.overtook ? `; overtook ${count(decision.overtook, 'older request')}` : '';
      reason.title = `Dispatched after ${duration(decision.queued_s)} because ${decision.queue_words}${overtook}`;
    }
    const line = make(
      'tr',
      '',
      make('td', '', open),
      reason,
      make('td', 'number', whole(decision.prompt_tokens)),
      hit,
      ttft,
    );
    line.addEventListener('click', () => this.view.openDecision(decision.decision_id));
    return line;
  }

  /** @param {DecisionLine[]} decisions */
  #spent(decisions) {
    const spent = timeSpent(decisions);
    byId('drawer-spent').hidden = !spent;
    if (!spent) return;
    const total = spent.queue + spent.engine;
    setText(byId('drawer-spent-of'), `last ${spent.count}, mean ${duration(total)}`);
    /** @type {[term: string, words: string, value: number][]} */
    const parts = [
      ['queue', 'Waiting at the gateway', spent.queue],
      ['prefill', 'Engine, to first token', spent.engine],
    ];
    byId('drawer-spent-bar').replaceChildren(
      ...parts
        .filter(([, , value]) => value > 0)
        .map(([term, , value]) => {
          const part = make('i', `term-${term}`);
          part.style.flexGrow = String(value / total);
          return part;
        }),
    );
    byId('drawer-spent-bar').setAttribute(
      'aria-label',
      parts.map(([, words, value]) => `${words} ${duration(value)}, ${percent(value / total)}${NARROW}%`).join('; '),
    );
    byId('drawer-spent-parts').replaceChildren(
      ...parts.map(([term, words, value]) =>
        make('div', '', make('dt', '', make('i', `term-${term}`), words), make('dd', '', duration(value))),
      ),
    );
  }

  /**
   * Show this decision over the engine; '' closes it.
   * @param {string} decisionId
   */
  open(decisionId) {
    if (decisionId === this.asked) return;
    if (decisionId) this.#explain(decisionId);
    else this.#close();
  }

  /** @param {string} decisionId */
  async #explain(decisionId) {
    this.asked = decisionId;
    const link = byId('drawer-story-json', HTMLAnchorElement);
    link.href = `/fleet/decisions/${encodeURIComponent(decisionId)}`;
    byId('drawer-story-page', HTMLAnchorElement).href = `/requests/${encodeURIComponent(decisionId)}`;
    try {
      const explained = await fetchDecision(decisionId);
      if (this.asked !== decisionId) return;
      this.#story(explained);
    } catch (error) {
      if (this.asked !== decisionId) return;
      setText(byId('drawer-story-title'), 'This decision cannot be shown');
      setText(byId('drawer-story-why'), error instanceof Error ? error.message : '');
      for (const part of ['facts', 'happened']) setText(byId(`drawer-story-${part}`), '');
      byId('drawer-story-table').hidden = true;
    }
    this.from = document.activeElement;
    this.story.hidden = false;
    byId('drawer-story-close').focus();
    this.story.scrollIntoView({ block: 'nearest' });
  }

  /** @param {Explained} explained */
  #story(explained) {
    const story = decisionStory(explained, (engineId) => this.names.get(engineId) ?? engineId);
    setText(byId('drawer-story-title'), story.title);
    setText(byId('drawer-story-why'), story.why);
    setText(byId('drawer-story-happened'), story.happened);
    const { decision } = explained;
    setText(
      byId('drawer-story-facts'),
      `${clockTenths(explained.decided_at)} · policy v${decision.policy_version} · ` +
        `${decision.placement}, ${decision.order}`,
    );
    const table = byId('drawer-story-table');
    table.hidden = !story.candidates.length;
    required(table, 'tbody').replaceChildren(
      ...story.candidates.map((candidate) => {
        const line = make(
          'tr',
          candidate.chosen ? 'selected' : '',
          make('td', '', candidate.name),
          ...[candidate.hit, candidate.wait, candidate.compute, candidate.cost].map((words) =>
            make('td', 'number', words),
          ),
        );
        return line;
      }),
    );
  }

  #close() {
    this.asked = '';
    if (this.story.hidden) return;
    this.story.hidden = true;
    if (this.from instanceof HTMLElement && this.from.isConnected) this.from.focus();
  }
}
