/* Entry of the pages that are lists of records: Access, Audit, Jobs. They work without it, with more clicks. */

import { find } from './element.js';
import { startRowKeys } from './row_keys.js';
import { startRefresh } from './refresh.js';
import { startCopy } from './copy.js';
import { startDialogs } from './dialogs.js';
import { startToast } from './page_toast.js';
import { startCanarySchedule } from '../trials/canary_schedule.js';

startDialogs();
startRowKeys();
startCopy();
startToast();
const part = find(document, '[data-refresh]');
if (part) startRefresh(part);
const schedule = find(document, '[data-canary-schedule]');
if (schedule) startCanarySchedule(schedule);
find(document, '.ledger-problem')?.focus();
find(document, '[data-select]', HTMLInputElement)?.select();
