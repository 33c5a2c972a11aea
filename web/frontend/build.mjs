/* Bundles the console into web/static/dist; fails when a file grows past its budget. */
import { gzipSync } from 'node:zlib';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, '..', 'static', 'dist');
const KB = 1024;
const budgets = {
  'console.js': 120 * KB,
  'topology.js': 16 * KB,
  'policy.js': 16 * KB,
  'code_editor.js': 140 * KB,
  'records.js': 8 * KB,
  'decisions.js': 8 * KB,
  'automation.js': 16 * KB,
  'cache_locality.js': 6 * KB,
  'advise.js': 1 * KB,
  'passkeys.js': 2 * KB,
  'console.css': 26 * KB,
};

const options = {
  absWorkingDir: join(here, '..', '..'),
  entryPoints: [
    { in: join(here, 'console.js'), out: 'console' },
    { in: join(here, 'fleet', 'topology', 'index.js'), out: 'topology' },
    { in: join(here, 'shell', 'records.js'), out: 'records' },
    { in: join(here, 'request_log', 'index.js'), out: 'decisions' },
    { in: join(here, 'automation', 'index.js'), out: 'automation' },
    { in: join(here, 'history', 'cache_locality.js'), out: 'cache_locality' },
    { in: join(here, 'advise.js'), out: 'advise' },
    { in: join(here, 'access', 'passkeys.js'), out: 'passkeys' },
    { in: join(here, 'style', 'index.css'), out: 'console' },
  ],
  outdir: out,
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022', 'chrome110', 'firefox115', 'safari16.4'],
  legalComments: 'none',
  logLevel: 'warning',
};
// The policy page loads its code editor when it is open, as a file of its own.
const policy = {
  ...options,
  entryPoints: [{ in: join(here, 'policies', 'index.js'), out: 'policy' }],
  splitting: true,
  chunkNames: '[name]-[hash]',
};
if (process.argv.includes('--watch')) {
  for (const one of [options, policy]) await (await esbuild.context({ ...one, sourcemap: 'inline' })).watch();
} else {
  rmSync(out, { recursive: true, force: true });
  for (const one of [options, policy]) await esbuild.build(one);
  const built = readdirSync(out).map((file) => ({ file, name: file.replace(/-\w{8}(?=\.)/, '') }));
  for (const { file, name } of built) {
    const budget = budgets[name] ?? 0;
    const packed = gzipSync(readFileSync(join(out, file))).length;
    process.stdout.write(`${name}: ${(packed / 1024).toFixed(1)} KB gzip, budget ${budget / 1024} KB\n`);
    if (packed > budget) process.exitCode = 1;
  }
  // `manage.py up` refuses to serve a console that was built from other sources. A container image has no such script.
  const sources = join(here, '..', '..', '.ci', 'console-sources');
  if (existsSync(sources)) writeFileSync(join(out, '.ready'), execFileSync(sources));
}
