/* Entry of the Topology page. Everything works without it; it spares whole page loads and keeps figures live. */

import { startTopology } from './topology_page.js';

if (document.getElementById('topology')) startTopology();
