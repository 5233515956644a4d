// SPDX-License-Identifier: Apache-2.0
// Panels. Curves, numbers and bars are drawn by components of @grafana/ui; tables and state timelines, whose plugins are not on npm, by small
// renderers of our own that know what our boards use.
import { useLayoutEffect } from 'react';
import * as D from '@grafana/data';
import { config } from '@grafana/runtime';
import { sceneUtils } from '@grafana/scenes';
import { BarGauge, BigValue, TimeSeries, VizRepeater } from '@grafana/ui';
import { AXIS, CELL, STRETCH, withOptions } from './environment.js';

const palette = () => config.theme2.colors;
const colour = (name) => config.theme2.visualization.getColorByName(name);
const shown = (value) => D.formattedValueToString(value);

function Nothing({ panel }) {
  const text = panel.fieldConfig.defaults.noValue;
  return (
    <div
      data-empty={text ? 'told' : 'untold'}
      style={{
        height: panel.height,
        display: 'flex',
        alignItems: 'center',
        justifyContent: 'center',
        color: palette().text.secondary,
        textAlign: 'center',
      }}
    >
      {text || 'No data'}
    </div>
  );
}
const withData = (Component) => (panel) => (panel.data.series.some((frame) => frame.length) ? <Component {...panel} /> : <Nothing panel={panel} />);

// --- curves with the annotations of the board --------------------------------------------------------------------------

function Annotations({ builder }) {
  useLayoutEffect(() => {
    builder.addHook('draw', (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.setLineDash([4, 4]);
      for (const { time, iconColor } of window.__annotations) {
        const x = plot.valToPos(time, 'x', true);
        ctx.strokeStyle = colour(iconColor);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    });
  }, [builder]);
  return null;
}

const Curves = withData((panel) => (
  <TimeSeries
    frames={panel.data.series}
    structureRev={panel.data.structureRev}
    timeRange={panel.timeRange}
    timeZone="utc"
    width={panel.width}
    height={panel.height}
    legend={panel.options.legend}
    options={panel.options}
  >
    {(builder) => <Annotations builder={builder} />}
  </TimeSeries>
));

// --- numbers and bars ----------------------------------------------------------------------------------------------------

const values = (panel) =>
  D.getFieldDisplayValues({
    fieldConfig: panel.fieldConfig,
    reduceOptions: panel.options.reduceOptions,
    replaceVariables: panel.replaceVariables,
    theme: config.theme2,
    data: panel.data.series,
    timeZone: 'utc',
    sparkline: panel.options.graphMode === 'area',
  });
const repeated = (draw) => (panel) => (
  <VizRepeater
    source={panel.data}
    getValues={() => values(panel)}
    width={panel.width}
    height={panel.height}
    orientation={panel.options.orientation || 'auto'}
    itemSpacing={6}
    minVizHeight={panel.options.minVizHeight}
    maxVizHeight={panel.options.maxVizHeight}
    renderCounter={panel.renderCounter}
    renderValue={(item) => draw(panel, item)}
  />
);
const Numbers = withData(
  repeated((panel, { value, width, height, count }) => (
    <BigValue
      value={value.display}
      width={width}
      height={height}
      theme={config.theme2}
      colorMode={panel.options.colorMode}
      graphMode={panel.options.graphMode}
      justifyMode={panel.options.justifyMode}
      textMode={panel.options.textMode === 'auto' && count === 1 ? 'value' : panel.options.textMode}
      sparkline={value.sparkline}
      count={count}
      text={panel.options.text}
    />
  )),
);
const Bars = withData(
  repeated((panel, { value, width, height }) => (
    <BarGauge
      value={value.display}
      width={width}
      height={height}
      theme={config.theme2}
      field={value.field}
      orientation="horizontal"
      displayMode={panel.options.displayMode}
      namePlacement={panel.options.namePlacement}
      showUnfilled={panel.options.showUnfilled}
      text={{ titleSize: 13, valueSize: 13 }}
      alignmentFactors={{ title: 'stage 00', text: '100.0 %' }}
    />
  )),
);

// --- state timeline ------------------------------------------------------------------------------------------------------

// Numbers that thresholds colour are shown, and merged, as ranges.
function rangeOf(field) {
  const { steps } = field.config.thresholds;
  const text = (value) => shown(field.display(value));
  return (value) => {
    const i = steps.findLastIndex((step) => value >= step.value);
    return i > 0 ? `${text(steps[i].value)}+` : `< ${text(steps[1].value)}`;
  };
}

function stretches(field, times, step) {
  const found = [];
  const limits = field.config.color?.mode === 'thresholds' && !field.config.mappings?.length && rangeOf(field);
  times.forEach((time, i) => {
    const value = field.values[i];
    const last = found.at(-1);
    if (value === null || value === undefined || Number.isNaN(value)) return;
    const display = field.display(value);
    const text = limits ? limits(value) : shown(display);
    if (last && last.text === text && last.color === display.color && time - last.to <= 2 * step) last.to = time + step;
    else {
      if (last && time - last.to <= 2 * step) last.to = time;
      found.push({ from: time, to: time + step, text, color: display.color || 'transparent' });
    }
  });
  return found;
}

const Timeline = withData(({ data, width, height, timeRange }) => {
  const rows = data.series.map((frame) => {
    const [time, field] = [frame.fields.find((f) => f.type === 'time'), frame.fields.find((f) => f.type === 'number')];
    return { name: D.getFieldDisplayName(field, frame, data.series), parts: stretches(field, time.values, (frame.meta?.custom?.step || 15) * 1000) };
  });
  const left = Math.min(260, 16 + 7 * Math.max(...rows.map((row) => row.name.length)));
  const [begin, end] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const x = (time) => left + ((Math.min(Math.max(time, begin), end) - begin) / (end - begin)) * (width - left - 8);
  const tall = (height - 22) / rows.length;
  const ticks = Array.from({ length: 6 }, (_, i) => begin + ((i + 0.5) / 6) * (end - begin));
  return (
    <svg width={width} height={height} fontSize={12} fill={palette().text.primary}>
      {rows.map((row, i) => (
        <g key={row.name} transform={`translate(0 ${i * tall})`}>
          <text x={left - 8} y={tall / 2 + 4} textAnchor="end">
            {row.name}
          </text>
          {row.parts.map((part) => {
            const [a, b] = [x(part.from), x(part.to)];
            const fits = b - a > 7 * part.text.length + 8;
            return (
              <g key={part.from}>
                <rect x={a} y={tall * 0.08} width={Math.max(b - a - 1, 1)} height={tall * 0.84} fill={part.color} fillOpacity={0.75} />
                {fits && (
                  <text
                    x={a + 5}
                    y={tall / 2 + 4}
                    fill={part.color === 'transparent' ? palette().text.secondary : palette().getContrastText(part.color)}
                  >
                    {part.text}
                  </text>
                )}
              </g>
            );
          })}
        </g>
      ))}
      {ticks.map((time) => (
        <text key={time} x={x(time)} y={height - 5} textAnchor="middle" fill={palette().text.secondary}>
          {new Date(time).toISOString().slice(11, 16)}
        </text>
      ))}
    </svg>
  );
});

// --- table -----------------------------------------------------------------------------------------------------------------

const Sheet = withData(({ data, height, options }) => {
  const frame = data.series[0];
  const fields = frame.fields.filter((field) => !field.config.custom?.hidden);
  const order = [...Array(frame.length).keys()];
  const [sort] = options.sortBy || [];
  const by = sort && fields.find((field) => D.getFieldDisplayName(field, frame) === sort.displayName);
  if (by) {
    const rank = (i) => by.values[i] ?? -Infinity;
    order.sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0) * (sort.desc ? -1 : 1));
  }
  const line = {
    padding: '3px 10px',
    borderBottom: `1px solid ${palette().border.weak}`,
    whiteSpace: 'nowrap',
    overflow: 'hidden',
    textOverflow: 'ellipsis',
    textAlign: 'left',
  };
  return (
    <div style={{ height, overflow: 'hidden' }}>
      <table style={{ width: '100%', borderCollapse: 'collapse', fontSize: 13 }}>
        <thead>
          <tr>
            {fields.map((field) => (
              <th key={field.name} style={{ ...line, color: palette().primary.text, fontWeight: 500 }}>
                {D.getFieldDisplayName(field, frame)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {order.map((i) => (
            <tr key={i}>
              {fields.map((field) => {
                const value = field.values[i];
                const display = value === undefined || value === null || value === '' ? undefined : field.display(value);
                const painted = field.config.custom?.cellOptions?.type === 'color-text';
                const linked = field.config.links?.length > 0;
                return (
                  <td key={field.name} style={{ ...line, color: painted ? display?.color : linked ? palette().text.link : undefined }}>
                    {display ? shown(display) : ''}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
});

export function registerPanels() {
  for (const [pluginId, Component, fields] of [
    ['timeseries', Curves, withOptions(AXIS)],
    ['stat', Numbers, {}],
    ['bargauge', Bars, {}],
    ['state-timeline', Timeline, withOptions(STRETCH)],
    ['table', Sheet, withOptions(CELL)],
  ]) {
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin: new D.PanelPlugin(Component).useFieldConfig(fields) });
  }
}
