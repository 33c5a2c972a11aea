/* Drain, Maintenance, Return to service: each asks once, says what it does and how to take it back, and notes why. */

import { askState } from './engine_card.js';
import { count } from '../../shell/format.js';
import { toast } from '../../shell/toast.js';
import { byId, make, required, setText } from '../../shell/element.js';
/** @import { EngineCard } from './engine_card.js' */

/**
 * The verbs that make sense in a wished-for state, in order: state asked for and its button.
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
 * What is on the engine, in the drawer's figures, and what a verb makes of it.
 * @param {Work} work
 * @param {(running: number) => string} goesOn
 * @param {(bound: number) => string} moves
 */
function workWords({ running, bound }, goesOn, moves) {
  if (Number.isNaN(running)) return 'In-flight requests are unknown: the gateway does not report it.';
  const runs =
    running > 0 ? `${count(running, 'request')} running there ${goesOn(running)}` : 'Nothing is running there';
  const waits = bound > 0 ? `${count(bound, 'queued request')} ${moves(bound)}` : 'nothing is queued for it';
  return `${runs}; ${waits}.`;
}

/**
 * What the dialog says before a verb, of the work on the engine at this moment: {title, verb, effects}.
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
          'New requests go elsewhere within 2 s.',
          workWords(work, (running) => (running === 1 ? 'finishes' : 'finish'), moves),
          'Return to service takes it back at any time.',
        ],
      };
    case 'maintenance':
      return {
        title: `Put ${name} into maintenance?`,
        verb: 'Start maintenance',
        effects: [
          'It gets no work, probes or alerts.',
          workWords(
            work,
            (running) => (running === 1 ? 'goes on as long as the engine lives' : 'go on as long as the engine lives'),
            moves,
          ),
          'Return to service takes it back at any time.',
        ],
      };
    default:
      return {
        title: `Return ${name} to service?`,
        verb: `Return ${name}`,
        effects: [
          'It is probed, and takes new work once it answers.',
          'Its cache starts with what its events say it holds.',
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
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (event.submitter?.getAttribute('value') === 'cancel') this.dialog.close();
      else this.#send();
    });
  }

  /** Nothing is known yet of the engine just opened. */
  clear() {
    this.card = null;
    this.key = '';
    this.root.replaceChildren();
  }

  /**
   * Offer the allowed actions; viewers are offered none.
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
   * Take the drawer's figures; an open question follows them.
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
