/* The engine drawer: who, why, the figures now with their last five minutes, what happened since. */

import { NARROW, ago, clock, duration, percent, setting, short, times, whole } from '../figures/format.js';
import { byId, make, setText, stateShape } from './element.js';
import { median } from './readout.js';

const WORDS = { serving: 'Serving', hot: 'Hot', degraded: 'Degraded', lost: 'Lost', draining: 'Draining', maintenance: 'Maintenance', starting: 'Starting', unknown: 'Unknown' };
const WHY = { hot: 'Why it is hot', degraded: 'Why it is degraded', lost: 'Why it is lost', draining: 'Why it drains', unknown: 'Why nothing is known' };
const TRUST = { exact: 'Exact', degraded: 'Degraded', blind: 'Blind' };

/** Words of the state pill, with the one figure that matters in that state. */
export function pillWords(engine, { at, seconds, left }) {
  const word = WORDS[engine.state] ?? engine.state;
  switch (engine.state) {
    case 'hot': return `${word}, ${duration(seconds)} of work`;
    case 'draining': return left > 0 ? `${word}, ${whole(left)} left` : 'Drained';
    case 'lost': case 'starting': case 'unknown': return `${word} for ${duration(Math.max(0, Math.floor(at - engine.since)))}`;
    default: return word;
  }
}

/** The measures of an engine: [name, value, unit or remark, series]. */
export function engineMeasures(state, row) {
  const now = (name) => state.nowOf(name, row);
  const past = (name) => state.series((index) => state.engineAt(name, row, index));
  const share = (name) => state.series((index) => state.shareAt(name, row, index));
  return [
    ['Outstanding', `${short(now('tokens'))} tok`, `≈${NARROW}${duration(now('seconds'))}`, past('tokens')],
    ['Running', whole(now('running')), '', past('running')],
    ['Bound, waiting', whole(now('bound')), '', past('bound')],
    ['KV in use', percent(now('kv')), Number.isNaN(now('kv')) ? '' : '%', share('kv')],
    ['Hit rate, reported', percent(state.shareAt('hit', row, state.index)), Number.isNaN(state.shareAt('hit', row, state.index)) ? '' : '%', share('hit')],
  ];
}

/** The engine beside the other engines of its pool. */
export function poolMeasures(state, row) {
  const peers = state.engines.flatMap((peer, place) => (peer.pool === state.engines[row].pool ? [place] : []));
  const tokens = state.nowOf('tokens', row);
  const all = peers.map((peer) => state.nowOf('tokens', peer));
  const middle = median(all);
  const total = all.reduce((sum, value) => sum + value, 0);
  const shares = state.series((index) => {
    const sum = peers.reduce((partial, peer) => partial + (state.engineAt('tokens', peer, index) || 0), 0);
    return sum ? state.engineAt('tokens', row, index) / sum : NaN;
  });
  return [
    ['Pool median', `${short(middle)} tok`, '', state.series((index) => median(peers.map((peer) => state.engineAt('tokens', peer, index))))],
    ['Times the median', middle > 0 ? times(tokens / middle) : '—', '', null],
    ['Share of the work', total ? percent(tokens / total) : '—', total ? '%' : '', shares],
  ];
}

export class Drawer {
  constructor(view) {
    this.view = view;
    this.root = byId('drawer');
    byId('drawer-close').addEventListener('click', () => view.openEngine(''));
  }

  /** Open or close it as the view says; the picture is laid out anew by its own observer. */
  toggle() {
    const open = this.view.engineRow >= 0;
    this.root.hidden = !open;
    byId('fleet').classList.toggle('with-drawer', open);
  }

  update() {
    const { state, engineRow: row } = this.view;
    if (row < 0 || state.index === null) return;
    const engine = state.engines[row];
    const pool = state.pools[state.poolRow(engine.pool)];
    this.root.setAttribute('aria-label', `Engine ${engine.name}`);
    setText(byId('drawer-name'), engine.name);
    this.#pill(engine, row);
    setText(byId('drawer-meta'), `${pool.name} · ${pool.region} · incarnation ${engine.incarnation}, ${WORDS[engine.state].toLowerCase()} since ${clock(engine.since)}`);
    byId('drawer-why').hidden = !engine.reason;
    setText(byId('drawer-why-title'), WHY[engine.state] ?? 'Why');
    setText(byId('drawer-why-text'), engine.reason);
    const age = state.nowOf('report_age_s', row);
    setText(byId('drawer-age'), Number.isNaN(age) ? 'no report yet' : `report ${duration(age)} old`);
    this.#measures(byId('drawer-measures'), [...engineMeasures(state, row), ['Index trust', engine.trust, 'trust', null]]);
    this.#measures(byId('drawer-against'), poolMeasures(state, row));
    setText(byId('drawer-pool'), pool.name);
    this.#routing(pool);
    this.#events(engine);
  }

  #pill(engine, row) {
    const { state } = this.view;
    const facts = { at: state.at, seconds: state.nowOf('seconds', row), left: state.nowOf('running', row) + state.nowOf('bound', row) };
    const words = pillWords(engine, facts);
    const pill = byId('drawer-pill');
    if (pill.dataset.words === engine.state + words) return;
    pill.dataset.words = engine.state + words;
    pill.className = `pill pill-${engine.state}`;
    pill.replaceChildren(stateShape(engine.state), words);
  }

  /** Rows are built once and then only their words change. */
  #measures(root, measures) {
    if (root.children.length !== measures.length * 3) {
      root.replaceChildren(...measures.flatMap(([name, , , series]) => [
        make('span', 'measure-name', name), series ? document.createElement('sy-spark') : make('span'), make('span', 'measure-value')]));
    }
    measures.forEach(([, value, unit, series], place) => {
      if (series) root.children[place * 3 + 1].show(series);
      const cell = root.children[place * 3 + 2];
      if (cell.dataset.text === value + unit) return;
      cell.dataset.text = value + unit;
      if (unit === 'trust') cell.replaceChildren(make('span', `trust trust-${value}`, make('b'), make('b'), make('b')), TRUST[value] ?? value);
      else cell.replaceChildren(value, ...(unit ? [make('i', '', unit)] : []));
    });
  }

  #routing(pool) {
    setText(byId('drawer-policy'), `policy v${pool.policy_version}`);
    const facts = [['Placement', pool.placement], ['Queue order', pool.order], ['TTFT SLO', setting(pool.ttft_slo_s)], ['Prefill speed', `${short(pool.tokens_per_s)} tok/s`]];
    const root = byId('drawer-routing');
    const key = JSON.stringify(facts);
    if (root.dataset.key === key) return;
    root.dataset.key = key;
    root.replaceChildren(...facts.flatMap(([name, value]) => [make('dt', '', name), make('dd', '', value)]));
  }

  #events(engine) {
    const { state } = this.view;
    const events = state.markers.filter((marker) => marker.engine_id === engine.id || (marker.kind === 'policy' && marker.pool_id === engine.pool)).reverse();
    setText(byId('drawer-since-title'), `Since ${clock(state.timeOf(state.first))}`);
    const root = byId('drawer-events');
    const key = `${engine.id} ${events.map((event) => event.number)}`;
    if (root.dataset.key === key) return;
    root.dataset.key = key;
    const items = events.map((event) => {
      const time = make('time', '', clock(event.at));
      time.dateTime = new Date(event.at * 1000).toISOString();
      time.title = ago(state.at - event.at);
      return make('li', '', time, make('span', '', event.text));
    });
    root.replaceChildren(...(items.length ? items : [make('li', '', 'No change of state.')]));
    root.classList.toggle('none', !items.length);
  }
}
