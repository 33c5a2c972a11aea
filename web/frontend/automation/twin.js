/* The charts as a table: one row per time column, newest first, with its plans. */

import { clock, dayClock } from '../shell/format.js';
import { make } from '../shell/element.js';
import { valueAt } from './series.js';
/** @import { ChartData, ChartRow } from './chart_rows.js' */

const MOST_ROWS = 240;

/**
 * Return the moments of the table rows, newest first.
 * @param {ChartData} data
 */
export function moments({ from_s: from, to_s: to, column_s: step }) {
  const every = step * Math.max(1, Math.ceil((to - from) / step / MOST_ROWS));
  const times = [];
  for (let at = Math.floor(to / every) * every; at >= from; at -= every) times.push(at);
  return times;
}

/**
 * @param {HTMLElement} root
 * @param {ChartData} data
 * @param {ChartRow[]} rows
 */
export function showTwin(root, data, rows) {
  const series = rows.flatMap((row) =>
    row.series.map((line) => ({ ...line, title: row.series.length > 1 ? `${row.name}, ${line.name}` : row.name })),
  );
  const head = make(
    'tr',
    '',
    ...['Time', ...series.map((line) => line.title), 'Plans'].map((title, index) => {
      const cell = make('th', index && index <= series.length ? 'number' : '', title);
      cell.scope = 'col';
      return cell;
    }),
  );
  const times = moments(data);
  const words = times[0] - times[times.length - 1] > 86_000 ? dayClock : clock;
  const body = times.map((at, index) => {
    const next = times[index - 1] ?? Infinity;
    const plans = data.marks
      .filter((mark) => mark.at >= at && mark.at < next)
      .map((mark) => mark.text)
      .join(' ');
    return make(
      'tr',
      '',
      make('td', '', words(at)),
      ...series.map((line) => make('td', 'number', line.words(valueAt(line, at)))),
      make('td', 'wrap', plans),
    );
  });
  const scrollTop = root.scrollTop;
  root.replaceChildren(make('table', '', make('thead', '', head), make('tbody', '', ...body)));
  root.scrollTop = scrollTop;
}
