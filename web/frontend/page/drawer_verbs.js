/* Drain, Maintenance, Return to service: each asks once, says what it does and how to take it back, and notes why. */

import { askState } from '../feed/engine_card.js';
import { count } from '../figures/format.js';
import { toast } from '../shell/toast.js';
import { byId, make, setText } from './element.js';

/** The verbs that make sense in a wished-for state, in order: state asked for and its button. */
export function verbsFor(desired) {
  switch (desired) {
    case 'draining': return [['ready', 'Return to service'], ['maintenance', 'Maintenance']];
    case 'maintenance': return [['ready', 'Return to service']];
    default: return [['draining', 'Drain'], ['maintenance', 'Maintenance']];
  }
}

/** The work on an engine of which no report tells. */
export const UNHEARD = { running: NaN, bound: NaN };

/** What is on the engine, in the drawer's figures, and what a verb makes of it. */
function workWords({ running, bound }, goesOn, moves) {
  if (Number.isNaN(running)) return 'Nobody knows what is in flight there: the gateway does not report it.';
  const runs = running > 0 ? `${count(running, 'request')} running there ${goesOn(running)}` : 'No request runs there';
  return `${runs}; ${bound > 0 ? `${count(bound, 'ticket')} bound to it ${moves(bound)}` : 'no ticket is bound to it'}.`;
}

/** What the dialog says before a verb, of the work on the engine at this moment: {title, verb, effects}. */
export function question(state, name, work) {
  const moves = (bound) => (bound === 1 ? 'is placed anew' : 'are placed anew');
  switch (state) {
    case 'draining': return {
      title: `Drain ${name}?`, verb: `Drain ${name}`,
      effects: ['New requests go elsewhere within 2 s.', workWords(work, (running) => (running === 1 ? 'finishes' : 'finish'), moves), 'Return to service takes it back at any time.'],
    };
    case 'maintenance': return {
      title: `Put ${name} into maintenance?`, verb: 'Start maintenance',
      effects: ['It takes no work and is not probed; nobody is told when it is down.', workWords(work, (running) => (running === 1 ? 'goes on as long as the engine lives' : 'go on as long as the engine lives'), moves), 'Return to service takes it back at any time.'],
    };
    default: return {
      title: `Return ${name} to service?`, verb: `Return ${name}`,
      effects: ['It is probed, and takes new work once it answers.', 'Its cache starts with what its events say it holds.'],
    };
  }
}

export class DrawerVerbs {
  constructor(onDone) {
    this.onDone = onDone;
    this.root = byId('drawer-verbs');
    this.dialog = byId('verb-dialog');
    this.form = byId('verb-form');
    this.work = UNHEARD;
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (event.submitter?.value === 'cancel') this.dialog.close();
      else this.#send();
    });
  }

  /** Nothing is known yet of the engine just opened. */
  clear() {
    this.card = null;
    this.key = '';
    this.root.replaceChildren();
  }

  /** Offer what may be done; who may only look is offered nothing. */
  show(card, failure) {
    this.card = card;
    const key = JSON.stringify(card && [card.engine_id, card.desired_state, card.may_steer, card.revision, failure]);
    if (key === this.key) return;
    this.key = key;
    const verbs = card?.may_steer ? verbsFor(card.desired_state) : [];
    this.root.replaceChildren(...verbs.map(([state, words]) => {
      const button = make('button', 'button', words);
      button.type = 'button';
      button.addEventListener('click', () => this.#ask(state));
      return button;
    }));
  }

  /** Take the drawer's figures; an open question follows them. */
  tell(work) {
    this.work = work;
    if (!this.dialog.open || this.card?.engine_id !== this.asked) return;
    question(this.form.elements.state.value, this.card.name, work).effects
      .forEach((words, place) => setText(byId('verb-effects').children[place], words));
  }

  #ask(state) {
    const { card } = this;
    const { title, verb, effects } = question(state, card.name, this.work);
    setText(byId('verb-title'), title);
    byId('verb-effects').replaceChildren(...effects.map((words) => make('li', '', words)));
    setText(byId('verb-send'), verb);
    setText(byId('verb-error'), '');
    this.form.action = `/fleet/engines/${encodeURIComponent(card.engine_id)}/state`;
    this.form.elements.state.value = state;
    this.form.elements.revision.value = String(card.revision);
    this.form.elements.why.value = '';
    this.asked = card.engine_id;
    this.dialog.showModal();
    this.form.elements.why.focus();
  }

  async #send() {
    byId('verb-send').disabled = true;
    const answer = await askState(this.asked, new FormData(this.form)).catch(() => ({ error: 'The server does not answer. Nothing was changed as far as we know; look at the engine and try again.' }));
    byId('verb-send').disabled = false;
    this.onDone();
    if (answer.error) {
      setText(byId('verb-error'), answer.error);
      return;
    }
    this.dialog.close();
    toast(answer.message);
  }
}
