/* Lint rules of `make check`; Prettier formats the scripts. */
import js from '@eslint/js';
import globals from 'globals';

export default [
  js.configs.recommended,
  { languageOptions: { ecmaVersion: 2025, sourceType: 'module', globals: globals.browser } },
  { files: ['**/*.test.js', '**/*.mjs'], languageOptions: { globals: globals.node } },
  {
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      eqeqeq: 'error',
      'no-console': ['error', { allow: ['warn'] }],
      'no-shadow': 'error',
      'no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      'no-var': 'error',
      'prefer-const': 'error',
    },
  },
];
