/* Entry of the Engines page. The page works without it; it avoids page loads and keeps figures live. */

import { startTopology } from './topology_page.js';

if (document.getElementById('topology')) startTopology();
