/* The verdict line and the six tiles. */

import { incidentLinks, requestsAddress, tileFigures } from './fleet_figures.js';
import { UNKNOWN } from '../shell/format.js';
import { byId, changeShape, findAll, required, sentence, setText } from '../shell/element.js';
/** @import { Spark } from '../charts/spark.js' */
/** @import { FleetState } from '../live/fleet_state.js' */
/** @import { View } from './view.js' */

export class Tiles {
  constructor() {
    this.tiles = [...byId('tiles').children].map((tile) => ({
      shape: required(tile, '.shape', SVGElement),
      label: required(tile, '.tile-label span'),
      window: required(tile, '.tile-window'),
      value: required(tile, '.tile-value'),
      figure: required(tile, '.tile-value b'),
      unit: required(tile, '.tile-value small'),
      note: required(tile, '.tile-note'),
      spark: /** @type {Spark} */ (required(tile, 'hw-spark')),
    }));
  }

  /** Clear the figures of an earlier view. */
  #clear() {
    for (const tile of this.tiles) {
      for (const part of [tile.window, tile.unit]) setText(part, '');
      setText(tile.note, '\u00a0');
      setText(tile.figure, UNKNOWN);
      tile.value.classList.add('unknown');
      tile.shape.setAttribute('hidden', '');
      tile.spark.show([]);
    }
  }

  /** @param {View} view */
  update(view) {
    if (view.focus < 0 || view.state.index === null) {
      this.#clear();
      return;
    }
    const shown = {
      poolId: view.poolId,
      since: view.state.timeOf(view.state.first),
      until: view.fixed ? view.state.timeOf(view.state.last + 1) : 0,
    };
    for (const link of findAll(document, '#fleet [data-query]', HTMLAnchorElement)) {
      const address = requestsAddress(link.dataset.query ?? '', shown);
      if (link.getAttribute('href') !== address) link.href = address;
    }
    tileFigures(view.state, view.pools, view.focus, Boolean(view.end), view.target).forEach((figures, index) => {
      const tile = this.tiles[index];
      setText(tile.label, figures.label);
      setText(tile.window, figures.window);
      if (tile.window.title !== figures.title) tile.window.title = figures.title;
      setText(tile.figure, figures.figure);
      tile.value.classList.toggle('unknown', figures.figure === UNKNOWN);
      setText(tile.unit, figures.unit);
      setText(tile.note, figures.note);
      if (tile.note.title !== figures.note) tile.note.title = figures.note;
      tile.shape.toggleAttribute('hidden', !figures.mark);
      if (figures.mark) changeShape(tile.shape, figures.mark);
      tile.spark.show(figures.spark);
    });
  }
}

/** @type {Record<string, string>} */
const SHAPES = { ok: 'serving', info: 'draining', warn: 'hot', bad: 'lost', quiet: 'unknown' };

/**
 * Show the server's sentence, or why there is none. Of a `past` stretch it begins with the stretch, and so does the
 * title of the tab.
 * @param {FleetState} state
 * @param {{ failure: string, past: boolean }} shown
 */
export function updateVerdict(state, { failure, past }) {
  const said = failure
    ? { severity: 'quiet', lead: 'No history.', text: sentence(failure), engine_id: '' }
    : state.verdict;
  const { severity, lead, text, shape, engine_id: engineId } = said;
  const line = byId('verdict');
  line.dataset.severity = severity;
  changeShape(required(line, 'svg', SVGElement), shape || SHAPES[severity]);
  line.title = `${lead} ${text}`;
  // Figures change with each sample; a new finding is announced once.
  if (required(line, 'b').textContent !== lead) setText(byId('verdict-said'), `${lead} ${text}`);
  setText(required(line, 'b'), lead);
  setText(required(line, 'p > span'), text);
  byId('verdict-live').hidden = !past;
  const stretch = past && !failure ? lead : '';
  setText(byId('fleet-title'), stretch ? `Fleet, ${stretch}` : 'Fleet');
  showMark(said.mark ?? '', stretch);
  const links = said.late_pool_id ? incidentLinks(state.atS, said.late_pool_id, said.late_since ?? 0) : null;
  const addresses = { late: links?.late, incident: said.incident ? `/incidents/${said.incident}` : links?.incident };
  for (const name of /** @type {const} */ (['late', 'incident'])) {
    const button = byId(`verdict-${name}`, HTMLAnchorElement);
    const address = addresses[name];
    button.hidden = !address;
    if (address) button.href = address;
  }
  const engine = state.engines[state.engineRow(engineId)];
  const link = byId('verdict-engine', HTMLAnchorElement);
  link.hidden = !engine;
  if (!engine) return;
  link.dataset.engine = engine.id;
  link.href = `?engine=${encodeURIComponent(engine.id)}`;
  setText(link, `Open ${engine.name}`);
}

/**
 * Show in the tab's title and icon whether an incident is open, and in the title the stretch of a past view.
 * @param {string} mark
 * @param {string} stretch
 */
function showMark(mark, stretch) {
  const about = stretch || mark;
  const title = about ? `${about} · Fleet` : 'Fleet · Headway';
  if (document.title !== title) document.title = title;
  const icon = byId('icon', HTMLLinkElement);
  const href = (mark ? icon.dataset.incident : icon.dataset.quiet) ?? '';
  if (icon.getAttribute('href') !== href) icon.href = href;
}
