/* The same data as the pictures, as a table: at the cursor's moment, or now. */

import { clock, duration, percentText, short, whole } from '../figures/format.js';
import { byId, make, stateShape } from './element.js';

const HEAD = [['Engine', ''], ['State', ''], ['Pool', ''], ['Outstanding, tok', 'number'], ['Wait', 'number'], ['Running', 'number'],
  ['Bound', 'number'], ['KV in use', 'number'], ['Hit, reported', 'number'], ['Index', ''], ['Report age', 'number']];

/** The cells of one engine as texts, in the order of HEAD; `index` null means now. */
export function tableRow(state, row, index) {
  const engine = state.engines[row];
  const value = (name) => (index === null ? state.nowOf(name, row) : state.engineAt(name, row, index));
  const kv = index === null ? state.nowOf('kv', row) : state.shareAt('kv', row, index);
  return [
    engine.name, index === null ? engine.state : state.stateAt(row, index) || 'unknown', state.pools[state.poolRow(engine.pool)].name,
    short(value('tokens')), duration(value('seconds')), whole(value('running')), whole(value('bound')), percentText(kv),
    percentText(state.shareAt('hit', row, index ?? state.index)), engine.trust, index === null ? duration(state.nowOf('report_age_s', row)) : '—',
  ];
}

export class TableTwin {
  constructor(view) {
    this.view = view;
    this.root = byId('twin');
    this.caption = make('caption');
    this.body = make('tbody');
    const head = make('tr', '', ...HEAD.map(([words, kind]) => {
      const cell = make('th', kind, words);
      cell.scope = 'col';
      return cell;
    }));
    this.root.append(make('table', '', this.caption, make('thead', '', head), this.body));
  }

  /** Write the rows that changed; called at the rate of the frames and only while it is shown. */
  update() {
    const { view } = this;
    const { state, rows } = view;
    if (!view.table || state.index === null) return;
    const index = view.cursor && view.cell ? view.cell.index : null;
    this.caption.textContent = index === null ? `Now, ${clock(state.at)} UTC` : `Column of ${clock(state.timeOf(index))} UTC; peaks within two seconds`;
    if (this.body.children.length !== rows.length) this.body.replaceChildren(...rows.map(() => this.#row()));
    rows.forEach((row, place) => this.#fill(this.body.children[place], row, index));
  }

  #row() {
    const row = make('tr', '', ...HEAD.map(([, kind]) => make('td', kind)));
    row.addEventListener('click', () => this.view.openEngine(row.dataset.engine));
    return row;
  }

  #fill(line, row, index) {
    const { state, engineId } = this.view;
    const engine = state.engines[row];
    const texts = tableRow(state, row, index);
    line.dataset.engine = engine.id;
    line.classList.toggle('selected', engine.id === engineId);
    texts.forEach((text, place) => {
      const cell = line.children[place];
      if (cell.dataset.text === text) return;
      cell.dataset.text = text;
      if (place === 0) {
        const button = make('button', 'row-button', text);
        button.type = 'button';
        cell.replaceChildren(button);
      } else if (place === 1) cell.replaceChildren(make('span', 'state-cell', stateShape(text), text));
      else cell.textContent = text;
    });
  }
}
