// SPDX-License-Identifier: Apache-2.0
// Shows a dashboard of the classic schema: /?board=NAME&theme=light&from=MS&to=MS&var-NAME=VALUE&rows=open|as-is
// It asks the server that it comes from for /boards/NAME.json and for Prometheus at /api. When all panels have their data,
// window.__done is true; window.__errors holds what failed, window.__empty the titles of panels without data.
import { createRoot } from 'react-dom/client';
import { MemoryRouter } from 'react-router-dom';
import { LocationServiceProvider, locationService } from '@grafana/runtime';
import {
  EmbeddedScene,
  QueryVariable,
  SceneControlsSpacer,
  SceneDataTransformer,
  SceneGridItem,
  SceneGridLayout,
  SceneGridRow,
  SceneQueryRunner,
  SceneRefreshPicker,
  SceneTimePicker,
  SceneTimeRange,
  SceneVariableSet,
  VariableValueSelectors,
  VizPanel,
  ConstantVariable,
  sceneGraph,
  sceneUtils,
} from '@grafana/scenes';
import { GlobalStyles, ThemeContext } from '@grafana/ui';
import { errors, prepare } from './environment.js';
import { Prometheus, SCRAPE, ask, timed } from './prometheus.js';
import { registerPanels } from './panels.jsx';

const asked = new URLSearchParams(location.search);
const theme = prepare(asked.get('theme') || 'dark');
let scene;
const joined = (value) => (Array.isArray(value) ? (value.length > 1 ? `(${value.join('|')})` : value[0]) : value);
const interpolate = (text) => sceneGraph.interpolate(scene, text, undefined, joined);

const itemOf = (panel, y = panel.gridPos.y) => {
  const queries = new SceneQueryRunner({
    datasource: { uid: 'prometheus' },
    queries: panel.targets.map((target) => ({ ...target, datasource: { uid: 'prometheus' } })),
    maxDataPoints: 300,
    minInterval: panel.interval,
  });
  const $data = panel.transformations ? new SceneDataTransformer({ $data: queries, transformations: panel.transformations }) : queries;
  const body = new VizPanel({
    pluginId: panel.type,
    title: panel.title,
    description: panel.description,
    options: panel.options,
    fieldConfig: panel.fieldConfig,
    $data,
  });
  return new SceneGridItem({ x: panel.gridPos.x, y, width: panel.gridPos.w, height: panel.gridPos.h, body, isResizable: false, isDraggable: false });
};

// Rows with their panels below each other, all open if asked; and the height of all in lines of the grid.
function layout(panels, open) {
  const rows = [];
  for (const panel of panels) {
    if (panel.type === 'row') rows.push({ ...panel, inside: [...panel.panels], isCollapsed: panel.collapsed && !open });
    else rows.at(-1).inside.push(panel);
  }
  let y = 0;
  const children = rows.map((row) => {
    const top = Math.min(...row.inside.map((panel) => panel.gridPos.y));
    const begin = y;
    const bottom = Math.max(...row.inside.map((panel) => panel.gridPos.y + panel.gridPos.h)) - top;
    y += 1 + (row.isCollapsed ? 0 : bottom);
    return new SceneGridRow({
      y: begin,
      title: row.title,
      isCollapsed: row.isCollapsed,
      children: row.isCollapsed ? [] : row.inside.map((panel) => itemOf(panel, begin + 1 + panel.gridPos.y - top)),
    });
  });
  return { children, height: y };
}

async function annotationsOf(board, range) {
  const step = 30;
  const found = [];
  for (const annotation of board.annotations.list) {
    const query = timed(interpolate(annotation.expr), range, step);
    const { result } = await ask('query_range', {
      query,
      start: Math.floor(range.from.valueOf() / 1000),
      end: Math.floor(range.to.valueOf() / 1000),
      step,
    });
    for (const series of result) {
      let last = -Infinity;
      for (const [time] of series.values) {
        if (time - last > step)
          found.push({
            time: time * 1000,
            iconColor: annotation.iconColor,
            text: annotation.titleFormat.replace(/\{\{(\w+)\}\}/g, (_, name) => series.metric[name] || name),
          });
        last = time;
      }
    }
  }
  return found.sort((a, b) => a.time - b.time);
}

const variableOf = (variable) =>
  new QueryVariable({
    name: variable.name,
    label: variable.label,
    hide: variable.hide,
    datasource: { uid: 'prometheus' },
    query: variable.query,
    regex: variable.regex,
    sort: variable.sort,
    refresh: variable.refresh,
    includeAll: variable.includeAll,
    isMulti: variable.multi,
    allValue: variable.allValue,
    value: asked.get(`var-${variable.name}`) || (variable.includeAll ? ['$__all'] : ''),
    text: asked.get(`var-${variable.name}`) || (variable.includeAll ? ['All'] : ''),
  });

function settled() {
  const runners = sceneGraph.findAllObjects(scene, (each) => each instanceof SceneQueryRunner);
  const shown = runners.filter((runner) => runner.isActive);
  return shown.length > 0 && shown.every((runner) => runner.state.data && runner.state.data.state !== 'Loading');
}

async function show() {
  const board = await (await fetch(`/boards/${asked.get('board')}.json`)).json();
  registerPanels();
  sceneUtils.registerRuntimeDataSource({ dataSource: new Prometheus((text) => interpolate(text)) });
  const { children, height } = layout(board.panels, asked.get('rows') !== 'as-is');
  const $timeRange = asked.get('from')
    ? new SceneTimeRange({ from: new Date(+asked.get('from')).toISOString(), to: new Date(+asked.get('to')).toISOString(), timeZone: 'utc' })
    : new SceneTimeRange({ ...board.time, timeZone: 'utc' });
  window.__range = $timeRange.state.value;
  scene = new EmbeddedScene({
    $timeRange,
    $variables: new SceneVariableSet({
      variables: board.templating.list.map((each) =>
        each.type === 'datasource' ? new ConstantVariable({ name: each.name, value: 'prometheus', hide: 2 }) : variableOf(each),
      ),
    }),
    controls: [
      new VariableValueSelectors({}),
      new SceneControlsSpacer(),
      new SceneTimePicker({}),
      new SceneRefreshPicker({ refresh: '', intervals: [board.refresh] }),
    ],
    body: new SceneGridLayout({ children, isLazy: false }),
  });
  window.__annotations = [];
  window.__height = 130 + height * 38;
  document.body.style.background = theme.colors.background.canvas;
  const stop = scene.activate();
  const until = async (condition) => {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 100));
  };
  await until(() =>
    scene.state.$variables.state.variables.every((each) => !each.state.loading && !scene.state.$variables.isVariableLoadingOrWaitingToUpdate(each)),
  );
  window.__annotations = await annotationsOf(board, window.__range);
  stop();
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <MemoryRouter>
        <LocationServiceProvider service={locationService}>
          <div style={{ padding: '8px 16px 0', fontSize: 20, color: theme.colors.text.primary }}>{board.title}</div>
          <scene.Component model={scene} />
        </LocationServiceProvider>
      </MemoryRouter>
    </ThemeContext.Provider>,
  );
  await until(settled);
  await new Promise((resolve) => setTimeout(resolve, 1500)); // what is drawn after the data
  window.__empty = [...document.querySelectorAll('[data-empty]')].map((each) => `${each.textContent} (${each.dataset.empty})`);
  for (const each of sceneGraph.findAllObjects(scene, (object) => object.state.data?.errors?.length))
    errors.push(...each.state.data.errors.map((error) => `${each.parent?.state.title}: ${error.message}`));
  for (const each of sceneGraph.findAllObjects(scene, (object) => object instanceof VizPanel && object.state._pluginLoadError))
    errors.push(`${each.state.title}: ${each.state._pluginLoadError}`);
  window.__done = true;
}

show().catch((error) => {
  errors.push(error.stack);
  window.__done = true;
});
