import assert from 'node:assert/strict';
import { test } from 'node:test';

globalThis.location = { search: '' };
const { View } = await import('./view.js');

test('the focused pool is that of the open engine, else of the verdict, else the first with requests', () => {
  const view = new View(() => {});
  view.state.engines = [
    { id: 'e-1', pool: 'a' },
    { id: 'e-2', pool: 'b' },
  ];
  view.state.pools = [{ id: 'a' }, { id: 'b' }];
  view.plan = [
    { pool: 0, rows: [0] },
    { pool: 1, rows: [1] },
  ];
  const said = { severity: 'bad', lead: '', text: '', engine_id: '' };
  const focus = (verdict) => {
    view.state.verdict = { ...said, ...verdict };
    return view.focus;
  };
  assert.equal(focus({}), 0);
  view.state.poolNow = (_name, pool) => [0, 3][pool];
  assert.equal(focus({}), 1);
  view.state.poolNow = (_name, pool) => [2, 3][pool];
  assert.equal(focus({}), 0);
  assert.equal(focus({ late_pool_id: 'b' }), 1);
  assert.equal(focus({ engine_id: 'e-2' }), 1);
  assert.equal(focus({ late_pool_id: 'of another scope' }), 0);
  view.engineId = 'e-1';
  assert.equal(focus({ late_pool_id: 'b' }), 0);
  view.engineId = '';
  view.plan = [{ pool: 0, rows: [0] }];
  assert.equal(focus({ late_pool_id: 'b' }), 0);
});
