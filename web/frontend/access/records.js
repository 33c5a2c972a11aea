/* Entry of the pages that are lists of records: Access, Audit, Jobs. All of them work without it, with more clicks. */

import { startRowKeys } from '../audit/row_keys.js';
import { startRefresh } from '../jobs/refresh.js';
import { startCopy } from './copy.js';
import { startDialogs } from './dialogs.js';
import { startToast } from './toast.js';

startDialogs();
startRowKeys();
startCopy();
startToast();
startRefresh(document.querySelector('[data-refresh]'));
document.querySelector('.ledger-problem')?.focus();
document.querySelector('[data-select]')?.select();
