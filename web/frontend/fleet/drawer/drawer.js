/* The engine drawer: identity, actions, reason, current figures with history, decisions, and events. */

import { NARROW, ago, clock, duration, percent, setting, short, times, whole } from '../../shell/format.js';
import { EngineCardFeed } from './engine_card.js';
import { DrawerDecisions } from './decisions.js';
import { DrawerVerbs, UNKNOWN_WORK } from './verbs.js';
import { byId, findAll, make, sentence, setText, stateShape } from '../../shell/element.js';
import { median } from '../heatmap/readout.js';
import { healthWord, showHealth } from './health.js';
import { lostAddress, requestsAddress } from '../fleet_figures.js';
import { roleMark } from '../heatmap/role_mark.js';
/** @import { Spark } from '../../charts/spark.js' */
/** @import { FleetState } from '../../live/fleet_state.js' */
/** @import { EngineFacts, PoolFacts } from '../../live/frame_types.js' */
/** @import { Timeline } from '../../live/timeline.js' */
/** @import { View } from '../view.js' */
/** @import { EngineCard } from './engine_card.js' */

/** Age in seconds from which figures are shown as old. */
const STALE_S = 5;

/** @type {Record<string, string>} */
const WORDS = {
  serving: 'Serving',
  hot: 'Hot',
  degraded: 'Degraded',
  lost: 'Lost',
  draining: 'Draining',
  maintenance: 'Maintenance',
  starting: 'Starting',
  unknown: 'Unknown',
  quarantined: 'Quarantined',
  removed: 'Removed',
};
/** @type {Record<string, string>} */
const WHY = {
  hot: 'Why it is hot',
  degraded: 'Why it is degraded',
  quarantined: 'Why it is quarantined',
  lost: 'Why it is lost',
  draining: 'Why it is draining',
  maintenance: 'Why it is out of service',
  unknown: 'Why the state is unknown',
};
/** @type {Record<string, string>} */
const TRUST = { exact: 'Exact', degraded: 'Degraded', blind: 'Blind' };

/** @typedef {[name: string, value: string, unit: string, series: number[] | null]} Measure */

/**
 * Return the text of the state pill, with the key figure of that state.
 * @param {EngineFacts} engine
 * @param {{ at: number, seconds: number, left: number }} facts
 */
export function pillWords(engine, { at, seconds, left }) {
  const word = healthWord(engine) || (WORDS[engine.state] ?? engine.state);
  if (engine.removed && engine.state !== 'removed') return `${word}, removed since`;
  switch (engine.state) {
    case 'hot':
      return `${word}, ${duration(seconds)} of work`;
    case 'draining':
      return left > 0 ? `${word}, ${whole(left)} left` : 'Drained';
    case 'lost':
    case 'starting':
    case 'unknown':
      return `${word} for ${duration(Math.max(0, Math.floor(at - engine.since)))}`;
    default:
      return word;
  }
}

/**
 * Return the measures of an engine: [name, value, unit or remark, series].
 * @param {FleetState} state
 * @param {number} row
 * @returns {Measure[]}
 */
export function engineMeasures(state, row) {
  /** @param {string} name */
  const now = (name) => state.nowOf(name, row);
  /**
   * @param {string} name
   */
  const past = (name) => state.series((index) => state.engineAt(name, row, index));
  /**
   * @param {string} name
   */
  const share = (name) => state.series((index) => state.shareAt(name, row, index));
  /**
   * @param {string} name
   * @returns {[value: string, unit: string, series: number[]]}
   */
  const rate = (name) => {
    const value = state.shareAt(name, row, state.last);
    return [percent(value), Number.isNaN(value) ? '' : '%', share(name)];
  };
  return [
    ['In flight', `${short(now('tokens'))} tok`, `≈${NARROW}${duration(now('seconds'))}`, past('seconds')],
    ['Running', whole(now('running')), '', past('running')],
    [
      'Queued for it',
      whole(now('bound')),
      now('bound') > 0 ? `oldest ${duration(now('oldest_s'))}` : '',
      past('bound'),
    ],
    ['KV in use', percent(now('kv')), Number.isNaN(now('kv')) ? '' : '%', share('kv')],
    ['Hit rate, reported', ...rate('hit')],
    ['Hit rate, predicted', ...rate('predicted')],
  ];
}

/**
 * Return the measures of an engine relative to its pool.
 * @param {FleetState} state
 * @param {number} row
 * @returns {Measure[]}
 */
export function poolMeasures(state, row) {
  const peers = state.engines.flatMap((peer, index) => (peer.pool === state.engines[row].pool ? [index] : []));
  const tokens = state.nowOf('tokens', row);
  const all = peers.map((peer) => state.nowOf('tokens', peer));
  const middle = median(all);
  const total = all.reduce((sum, value) => sum + (Number.isNaN(value) ? 0 : value), 0);
  return [
    ['Pool median', `${short(middle)} tok`, '', null],
    ['Ratio to median', middle > 0 ? times(tokens / middle) : '—', '', null],
    ['Share of load', total ? percent(tokens / total) : '—', total ? '%' : '', null],
  ];
}

export class Drawer {
  /**
   * @param {View} view
   * @param {Timeline} timeline
   */
  constructor(view, timeline) {
    this.view = view;
    this.timeline = timeline;
    this.root = byId('drawer');
    /** @type {Element | null} Element focused before the drawer opened. */
    this.from = null;
    this.shown = '';
    /** @type {EngineFacts[] | null} The engines that `known` was built from. */
    this.namesOf = null;
    /** @type {Map<string, string>} */
    this.known = new Map();
    this.decisions = new DrawerDecisions(view);
    this.verbs = new DrawerVerbs(() => this.cards.refresh());
    this.cards = new EngineCardFeed((card, failure) => this.#card(card, failure));
    byId('drawer-close').addEventListener('click', () => view.openEngine(''));
  }

  /** Open or close the drawer to match the view; an observer updates the layout. */
  toggle() {
    const { view } = this;
    // The engines are unknown before the first frame.
    const open = Boolean(view.engineId) && view.state.index !== null;
    const missing = open && view.engineRow < 0;
    const opened = open && this.root.hidden;
    const closed = !open && !this.root.hidden;
    if (opened) this.from = document.activeElement;
    this.root.hidden = !open;
    byId('fleet').classList.toggle('with-drawer', open);
    this.root.classList.toggle('missing', missing);
    if (missing) this.#missing();
    const engineId = open && !missing ? view.engineId : '';
    const removed = Boolean(view.state.engines[view.engineRow]?.removed);
    const shown = `${engineId} ${removed}`;
    if (shown !== this.shown) {
      this.shown = shown;
      this.decisions.clear();
      this.verbs.clear();
      this.cards.follow(removed ? '' : engineId);
      if (removed) this.#card(null, 'This engine was removed from the fleet.');
    }
    this.decisions.open(engineId && view.decisionId);
    // Return the focus to the element that opened the drawer.
    if (closed && this.root.contains(document.activeElement))
      (this.from instanceof HTMLElement && this.from.isConnected ? this.from : byId('main')).focus();
  }

  /** Show that the engine in the address is not in the fleet. */
  #missing() {
    const { engineId } = this.view;
    this.root.setAttribute('aria-label', `Engine ${engineId}`);
    setText(byId('drawer-name'), engineId);
    setText(
      byId('drawer-missing-name'),
      `Engine ${engineId} ${this.timeline.end ? 'was not in this fleet then' : 'is not in this fleet'}.`,
    );
    byId('drawer-pill').replaceChildren();
    delete byId('drawer-pill').dataset.words;
    byId('drawer-pill').className = '';
    setText(byId('drawer-meta'), '');
  }

  update() {
    const { state, engineRow: row } = this.view;
    if (row < 0 || state.index === null) return;
    const engine = state.engines[row];
    const pool = state.pools[state.poolRow(engine.pool)];
    this.root.setAttribute('aria-label', `Engine ${engine.name}`);
    setText(byId('drawer-name'), engine.name);
    this.#pill(engine, row);
    setText(byId('drawer-meta'), metaWords(engine, pool));
    byId('drawer-why').hidden = !engine.reason;
    setText(byId('drawer-why-title'), WHY[engine.state] ?? 'Why');
    setText(byId('drawer-why-text'), sentence(engine.reason));
    const age = state.nowOf('report_age_s', row);
    const past = Boolean(this.timeline.end);
    setText(byId('drawer-now'), past ? `At ${clock(state.timeOf(state.last + 1))}` : 'Now');
    setText(byId('drawer-decisions-when'), past ? 'current' : '');
    const stale = !past && !engine.removed && age > STALE_S;
    this.root.classList.toggle('silent', stale);
    const words = stale ? `no reports for ${duration(age)}: figures are old` : `report ${duration(age)} old`;
    setText(byId('drawer-age'), past || engine.removed ? '' : Number.isNaN(age) ? 'no report yet' : words);
    /** @type {Measure[]} */
    const trust = engine.trust ? [['Index trust', engine.trust, 'trust', null]] : [];
    this.#measures(byId('drawer-measures'), [...engineMeasures(state, row), ...trust]);
    byId('drawer-trust-reason').hidden = !engine.trust_reason;
    setText(byId('drawer-trust-reason'), engine.trust_reason ? `Index trust: ${engine.trust_reason}.` : '');
    this.#measures(byId('drawer-against'), [...poolMeasures(state, row), ...routing(pool)]);
    byId('drawer-cache-locality', HTMLAnchorElement).href =
      `/cache/pools/${encodeURIComponent(pool.id)}?without=${encodeURIComponent(engine.name)}#cache-locality-hits`;
    const shown = { poolId: '', since: state.timeOf(state.first), until: past ? state.timeOf(state.last + 1) : 0 };
    byId('drawer-requests', HTMLAnchorElement).href = requestsAddress(
      new URLSearchParams({ engine: engine.id }).toString(),
      shown,
    );
    const lost = byId('drawer-lost', HTMLAnchorElement);
    lost.hidden = engine.state !== 'lost';
    lost.href = lostAddress(engine.id, engine.since);
    setText(byId('drawer-pool'), `${pool.name}, policy v${pool.policy_version}`);
    this.#events(engine);
    this.updateVerbs();
    this.decisions.names = this.#names(state);
  }

  /** Pass the live figures to the actions, which act on the present even if the drawer shows the past. */
  updateVerbs() {
    const { state } = this.timeline.live;
    const row = state.engineRow(this.view.engineId);
    this.verbs.update(
      row < 0 ? UNKNOWN_WORK : { running: state.nowOf('running', row), bound: state.nowOf('bound', row) },
    );
  }

  /**
   * Return names by engine id, for the candidates of a decision.
   * @param {FleetState} state
   */
  #names(state) {
    if (this.namesOf !== state.engines) {
      this.namesOf = state.engines;
      this.known = new Map(state.engines.map((engine) => [engine.id, engine.name]));
    }
    return this.known;
  }

  /**
   * @param {EngineCard | null} card
   * @param {string} failure
   */
  #card(card, failure) {
    this.verbs.show(card, failure);
    this.decisions.show(card, failure);
    showHealth(card);
    byId('drawer-below').hidden = !card?.below;
    setText(byId('drawer-below'), card?.below ?? '');
  }

  /**
   * @param {EngineFacts} engine
   * @param {number} row
   */
  #pill(engine, row) {
    const { state } = this.view;
    const facts = {
      at: state.atS,
      seconds: state.nowOf('seconds', row),
      left: state.nowOf('running', row) + state.nowOf('bound', row),
    };
    const words = pillWords(engine, facts);
    const pill = byId('drawer-pill');
    if (pill.dataset.words === engine.state + words) return;
    pill.dataset.words = engine.state + words;
    pill.className = `pill pill-${engine.state}`;
    pill.replaceChildren(stateShape(engine.state), words);
  }

  /**
   * Update the rows, which are built once.
   * @param {HTMLElement} root
   * @param {Measure[]} measures
   */
  #measures(root, measures) {
    if (root.children.length !== measures.length * 3) {
      root.replaceChildren(
        ...measures.flatMap(([name, , , series]) => [
          make('span', 'measure-name', name),
          series ? document.createElement('hw-spark') : make('span'),
          make('span', 'measure-value'),
        ]),
      );
    }
    measures.forEach(([name, value, unit, series], index) => {
      const [title, picture, cell] = findAll(root, ':scope > *').slice(index * 3, index * 3 + 3);
      setText(title, name);
      if (series) /** @type {Spark} */ (picture).show(series);
      if (cell.dataset.text === value + unit) return;
      cell.dataset.text = value + unit;
      if (unit === 'trust')
        cell.replaceChildren(
          make('span', `trust trust-${value}`, make('b'), make('b'), make('b')),
          TRUST[value] ?? value,
        );
      else cell.replaceChildren(value, ...(unit ? [make('i', '', unit)] : []));
    });
  }

  /** @param {EngineFacts} engine */
  #events(engine) {
    const { state } = this.view;
    const events = state.markers
      .filter((marker) => marker.engine_id === engine.id || (!marker.engine_id && marker.pool_id === engine.pool))
      .reverse();
    setText(byId('drawer-since-title'), `Since ${clock(state.timeOf(state.first))}`);
    const root = byId('drawer-events');
    const key = `${engine.id} ${JSON.stringify(events.map((event) => [event.at, event.text]))}`;
    if (root.dataset.key === key) return;
    root.dataset.key = key;
    const items = events.map((event) => {
      const time = make('time', '', clock(event.at));
      time.dateTime = new Date(event.at * 1000).toISOString();
      time.title = ago(state.atS - event.at);
      return make('li', '', time, make('span', '', event.text));
    });
    root.replaceChildren(...(items.length ? items : [make('li', '', 'No state or policy changes.')]));
    root.classList.toggle('none', !items.length);
  }
}

/**
 * Return the line under the name: pool, region, incarnation, and start; without what the past does not store.
 * @param {EngineFacts} engine
 * @param {PoolFacts} pool
 */
export function metaWords(engine, pool) {
  const incarnation = engine.incarnation ? `incarnation ${engine.incarnation}, ` : '';
  const role = roleMark(engine) ? `${engine.role} · ` : '';
  const word = (WORDS[engine.state] ?? engine.state).toLowerCase();
  return `${pool.name} · ${pool.region} · ${role}${incarnation}${word} since ${clock(engine.since)}`;
}

/**
 * @param {PoolFacts} pool
 * @returns {Measure[]}
 */
const admission = (pool) =>
  pool.admission ? [['Admission', pool.admission === 'off' ? 'off' : pool.admission, '', null]] : [];

/**
 * @param {PoolFacts} pool
 * @returns {Measure[]}
 */
const routing = (pool) => [
  ['Placement', pool.placement, '', null],
  ['Queue order', pool.order, '', null],
  ...admission(pool),
  ['TTFT SLO', setting(pool.ttft_slo_s), '', null],
  ['Prefill speed', `${short(pool.tokens_per_s)} tok/s`, '', null],
];
