/* Labels the cells of tables, so that a phone shows each row as a list instead of columns to scroll sideways. */

/**
 * Write each column's heading to its cells below `root`; the first cell of a row is the row's own heading.
 * @param {ParentNode} root
 */
export function labelCells(root) {
  for (const table of root.querySelectorAll('table.ledger-table, table.policies')) {
    const head = table instanceof HTMLTableElement ? table.tHead?.rows[0] : undefined;
    if (!head || !(table instanceof HTMLTableElement)) continue;
    table.dataset.stacked = '';
    const labels = [...head.cells].map((cell) => cell.textContent?.replace(/\s+/g, ' ').trim() ?? '');
    for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
      for (const cell of [...row.cells].slice(1)) {
        if (labels[cell.cellIndex]) cell.dataset.label = labels[cell.cellIndex];
      }
    }
  }
}
