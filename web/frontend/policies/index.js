/* Entry of the policy pages: the editor, its confirmation, the comparison and the three-way merge. */

import { startDialogs } from '../shell/dialogs.js';
import { byId, find, required } from '../shell/element.js';
import { startCopy } from './copy.js';
import { startEditor } from './editor/editor.js';
import { settleSubmitted } from './editor/kept_text.js';
import { listenToPolicyKeys } from './keys.js';
import { startQuestion } from './question.js';
import { followReach, watchLive } from './live_version.js';
import { startCountdown } from './when.js';
/** @import { KeyActions } from './keys.js' */

const page = find(document, '#policy');
const area = find(document, '#document', HTMLTextAreaElement);
const button = find(document, '#copy-json', HTMLButtonElement);
const question = find(document, '#question', HTMLDialogElement);
const banner = find(document, '#reach');
/** @type {KeyActions} */
const actions = page ? startEditor(page) : {};
if (button && area) actions.copy = startCopy(button, area);
const link = find(document, '#whatif-link');
if (link) actions.whatif = () => link.click();
listenToPolicyKeys(actions);
if (question) startQuestion(question);
startDialogs();
const scheduled = find(document, '#schedule-at', HTMLTimeElement);
if (scheduled) startCountdown(scheduled, byId('schedule-until'));
if (page && banner) followReach(banner, page.dataset.state ?? '');
if (page) {
  watchLive(page.dataset.state ?? '', page.dataset.live ?? '', ({ live, author, ago }) => {
    const notice = byId('overtaken');
    required(notice, 'span').textContent =
      `${author} published v${live} ${ago}. ` + 'Your text is kept. When you publish, you merge both versions.';
    notice.hidden = false;
  });
}
const merge = find(document, '#merge');
if (merge)
  settleSubmitted(localStorage, { user: merge.dataset.user ?? '', slug: merge.dataset.slug ?? '', draft: 'merge' });
if (merge) find(merge, '#error-summary')?.focus();
