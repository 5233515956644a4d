// SPDX-License-Identifier: Apache-2.0
// react-router-dom-v5-compat, which @grafana/scenes asks for, wants names of version 5 that nothing here calls.
const version5 = {
  name: 'names-of-version-5',
  enforce: 'pre',
  resolveId: (id, importer) => (id === 'react-router-dom' && importer?.includes('react-router-dom-v5-compat') ? '\0version5' : undefined),
  load: (id) =>
    id === '\0version5'
      ? 'export const Route = () => null; export const useHistory = () => ({ listen() {}, location: window.location }); export const Router = () => null; export const Switch = () => null;'
      : undefined,
};

export default {
  plugins: [version5],
  logLevel: 'error',
  build: { target: 'esnext', minify: false, chunkSizeWarningLimit: 20000 },
  define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}', global: 'globalThis' },
  resolve: { dedupe: ['react-router', 'react', 'react-dom', '@grafana/data', '@grafana/ui', '@grafana/runtime', '@grafana/schema'] },
  esbuild: { jsx: 'automatic' },
};
