/* Drain, Maintenance, Return to service, Quarantine, End quarantine: each confirms with effects, undo, and a reason. */

import { askState } from './engine_card.js';
import { count } from '../../shell/format.js';
import { toast } from '../../shell/toast.js';
import { byId, make, required, setText } from '../../shell/element.js';
/** @import { EngineCard } from './engine_card.js' */

/**
 * Return the actions for a desired state, in order: target state and button label.
 * @param {string} desired
 */
export function verbsFor(desired) {
  switch (desired) {
    case 'draining':
      return [
        ['ready', 'Return to service'],
        ['maintenance', 'Maintenance'],
      ];
    case 'maintenance':
      return [['ready', 'Return to service']];
    default:
      return [
        ['draining', 'Drain'],
        ['maintenance', 'Maintenance'],
      ];
  }
}

/** @typedef {{ running: number, bound: number }} Work requests on an engine; NaN where unknown */

/** The work on an engine without a report. */
export const UNKNOWN_WORK = { running: NaN, bound: NaN };

/**
 * Return the work on the engine and the effect of an action on it.
 * @param {Work} work
 * @param {(running: number) => string} goesOn
 * @param {(bound: number) => string} moves
 */
function workWords({ running, bound }, goesOn, moves) {
  if (Number.isNaN(running)) return 'In-flight requests are unknown: the gateway has no report from this engine.';
  const runs = running > 0 ? `${count(running, 'in-flight request')} ${goesOn(running)}` : 'No in-flight requests';
  const waits = bound > 0 ? `${count(bound, 'queued request')} ${moves(bound)}` : 'no queued requests';
  return `${runs}; ${waits}.`;
}

/**
 * Return the confirmation of an action with the current work: {title, verb, effects}.
 * @param {string} state
 * @param {string} name
 * @param {Work} work
 */
export function question(state, name, work) {
  /** @param {number} bound */
  const moves = (bound) => (bound === 1 ? 'moves to another engine' : 'move to other engines');
  switch (state) {
    case 'draining':
      return {
        title: `Drain ${name}?`,
        verb: `Drain ${name}`,
        effects: [
          'New requests go to other engines within 2 s.',
          workWords(work, (running) => (running === 1 ? 'finishes' : 'finish'), moves),
          'Undo at any time: Return to service.',
        ],
      };
    case 'maintenance':
      return {
        title: `Put ${name} into maintenance?`,
        verb: 'Start maintenance',
        effects: [
          'The engine receives no requests or probes and raises no alerts.',
          workWords(
            work,
            (running) => (running === 1 ? 'continues while the engine runs' : 'continue while the engine runs'),
            moves,
          ),
          'Undo at any time: Return to service.',
        ],
      };
    case 'quarantine':
      return {
        title: `Quarantine ${name}?`,
        verb: `Quarantine ${name}`,
        effects: [
          'New requests go to other engines within 1 s; probes continue.',
          workWords(work, (running) => (running === 1 ? 'continues there' : 'continue there'), moves),
          'Lasts until a person ends it: End quarantine.',
        ],
      };
    case 'trust':
      return {
        title: `End the quarantine of ${name}?`,
        verb: 'End quarantine',
        effects: [
          'The engine gets its full share of new requests at once.',
          'Health checks ignore it for 10 min.',
          'Undo at any time: Quarantine.',
        ],
      };
    default:
      return {
        title: `Return ${name} to service?`,
        verb: `Return ${name}`,
        effects: [
          'Headway probes the engine and routes requests to it after it answers.',
          'Its cache index is rebuilt from its KV events.',
        ],
      };
  }
}

export class DrawerVerbs {
  /** @param {() => void} onDone */
  constructor(onDone) {
    this.onDone = onDone;
    this.root = byId('drawer-verbs');
    this.dialog = byId('verb-dialog', HTMLDialogElement);
    this.form = byId('verb-form', HTMLFormElement);
    this.work = UNKNOWN_WORK;
    /** @type {EngineCard | null} */
    this.card = null;
    this.asked = '';
    this.key = '';
    byId('drawer-health-verb').addEventListener('click', () => this.card && this.#ask(this.card.health_verb));
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (event.submitter?.getAttribute('value') === 'cancel') this.dialog.close();
      else this.#send();
    });
  }

  /** Reset for an engine just opened. */
  clear() {
    this.card = null;
    this.key = '';
    this.root.replaceChildren();
  }

  /**
   * Show the allowed actions; none for viewers.
   * @param {EngineCard | null} card
   * @param {string} failure
   */
  show(card, failure) {
    this.card = card;
    const key = JSON.stringify(card && [card.engine_id, card.desired_state, card.may_operate, card.revision, failure]);
    if (key === this.key) return;
    this.key = key;
    const verbs = card?.may_operate ? verbsFor(card.desired_state) : [];
    this.root.replaceChildren(
      ...verbs.map(([state, words]) => {
        const button = make('button', 'button', words);
        button.type = 'button';
        button.addEventListener('click', () => this.#ask(state));
        return button;
      }),
    );
  }

  /**
   * Take the drawer's figures and update an open confirmation.
   * @param {Work} work
   */
  update(work) {
    this.work = work;
    if (!this.dialog.open || this.card?.engine_id !== this.asked) return;
    question(this.#field('state').value, this.card.name, work).effects.forEach((words, index) =>
      setText(byId('verb-effects').children[index], words),
    );
  }

  /** @param {string} name */
  #field(name) {
    return required(this.form, `[name=${name}]`, HTMLInputElement);
  }

  /** @param {string} state */
  #ask(state) {
    const { card } = this;
    if (!card) return;
    const { title, verb, effects } = question(state, card.name, this.work);
    setText(byId('verb-title'), title);
    byId('verb-effects').replaceChildren(...effects.map((words) => make('li', '', words)));
    setText(byId('verb-send'), verb);
    setText(byId('verb-error'), '');
    this.form.action = `/fleet/engines/${encodeURIComponent(card.engine_id)}/state`;
    this.#field('state').value = state;
    this.#field('revision').value = String(card.revision);
    this.#field('why').value = '';
    this.asked = card.engine_id;
    this.dialog.showModal();
    this.#field('why').focus();
  }

  async #send() {
    byId('verb-send', HTMLButtonElement).disabled = true;
    const answer = await askState(this.asked, new FormData(this.form)).catch(() => ({
      error: 'The server does not answer. Check the engine and try again.',
    }));
    byId('verb-send', HTMLButtonElement).disabled = false;
    this.onDone();
    if (answer.error) {
      setText(byId('verb-error'), answer.error);
      return;
    }
    this.dialog.close();
    toast(answer.message);
  }
}
