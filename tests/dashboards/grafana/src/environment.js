// SPDX-License-Identifier: Apache-2.0
// What a Grafana server's front end registers before it shows a dashboard: options of fields, transformations, how queries are run.
import { from, map } from 'rxjs';
import * as D from '@grafana/data';
import { setAppEvents, setPluginImportUtils, setRunRequest, config } from '@grafana/runtime';

export const errors = (window.__errors = []);
window.addEventListener('error', (event) => errors.push(String(event.message)));
window.addEventListener('unhandledrejection', (event) => errors.push(String(event.reason?.stack || event.reason)));

const same = D.identityOverrideProcessor;
const property = (id, more = {}) => ({
  id,
  path: id,
  name: id,
  editor: () => null,
  override: () => null,
  process: same,
  shouldApply: () => true,
  category: ['Standard'],
  settings: {},
  ...more,
});
const EDITORS = [
  'number',
  'slider',
  'text',
  'boolean',
  'select',
  'radio',
  'thresholds',
  'unit',
  'color',
  'strings',
  'multi-select',
  'stats-picker',
  'mappings',
  'links',
  'fieldColor',
  'timezone',
  'field-name',
  'actions',
  'data-links',
  'dashboard-uid',
  'cell-options',
];

export function prepare(mode) {
  D.standardEditorsRegistry.setInit(() => EDITORS.map((id) => ({ id, name: id, editor: () => null })));
  D.standardFieldConfigEditorRegistry.setInit(() => [
    ...['unit', 'min', 'max', 'decimals', 'noValue', 'links', 'filterable', 'fieldMinMax', 'actions'].map((id) => property(id)),
    property('displayName', { process: D.displayNameOverrideProcessor || same }),
    property('color', { defaultValue: { mode: 'palette-classic' } }),
    property('mappings', { process: D.valueMappingsOverrideProcessor || same }),
    property('thresholds', { process: D.thresholdsOverrideProcessor }),
  ]);
  const transformations = new Map(Object.values(D.standardTransformers).map((transformation) => [transformation.id, transformation])); // some are there twice
  D.standardTransformersRegistry.setInit(() =>
    [...transformations.values()].map((transformation) => ({
      id: transformation.id,
      name: transformation.name,
      transformation: () => Promise.resolve(transformation),
      editor: () => null,
    })),
  );
  setPluginImportUtils({ importPanelPlugin: (id) => Promise.reject(new Error(`no panel ${id}`)), getPanelPluginFromCache: () => undefined });
  setAppEvents(new D.EventBusSrv());
  setRunRequest((source, request) =>
    from(source.query(request)).pipe(map((answer) => ({ state: D.LoadingState.Done, series: answer.data, timeRange: request.range }))),
  );
  const theme = D.createTheme({ colors: { mode } });
  config.theme2 = theme;
  return theme;
}

// Options of panels with an axis; the value is Grafana's default.
export const AXIS = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  lineStyle: { fill: 'solid' },
  fillOpacity: 0,
  gradientMode: 'none',
  showPoints: 'auto',
  pointSize: 5,
  axisPlacement: 'auto',
  axisLabel: '',
  scaleDistribution: { type: 'linear' },
  hideFrom: { legend: false, tooltip: false, viz: false },
  stacking: { mode: 'none', group: 'A' },
  thresholdsStyle: { mode: 'off' },
  spanNulls: false,
  barAlignment: 0,
  axisSoftMax: undefined,
};
export const CELL = { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, width: undefined };
export const STRETCH = { lineWidth: 0, fillOpacity: 70 };
export const withOptions = (defaults) => ({
  useCustomConfig: (builder) => {
    for (const [id, defaultValue] of Object.entries(defaults)) {
      builder.addCustomEditor({
        id,
        path: id,
        name: id,
        editor: () => null,
        override: () => null,
        process: same,
        shouldApply: () => true,
        defaultValue,
      });
    }
  },
});
