# SPDX-License-Identifier: Apache-2.0
"""Building blocks of a Grafana dashboard in the classic schema: rows, panels, variables, annotations.

A Board places its panels from left to right and begins a new line where one does not fit. Panels of a collapsed row lie inside it, as
Grafana writes them.
"""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24   # columns of Grafana's grid
LETTERS = "ABCDEFGHIJKLMNOP"


def target(expression, legend="", instant=False, table=False):
    return {"datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto", "instant": instant, "range": not instant,
            "format": "table" if table else "time_series"}


def steps(*pairs):
    """Thresholds: (colour, from this value on); the first has no value."""
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for colour, value in pairs]}


def words(**texts):
    """A value mapping: words(_0=("healthy", "green"))."""
    return {"type": "value", "options": {name.lstrip("_"): {"text": text, "color": colour, "index": i} for i,
                                         (name, (text, colour)) in enumerate(texts.items())}}


def override(name, **properties):
    """Properties of the field of this name; a dot is written as two underscores."""
    return {"matcher": {"id": "byName", "options": name},
            "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]}


def of_query(letter, **properties):
    return {"matcher": {"id": "byFrameRefID", "options": letter},
            "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]}


def panel(kind, title, description, queries, width, height, unit="none", options=None, custom=None, overrides=(), transformations=(), **defaults):
    fields = {"unit": unit, **defaults}
    if custom:
        fields["custom"] = custom
    made = {"type": kind, "title": title, "description": description, "datasource": SOURCE, "gridPos": {"w": width, "h": height},
            "fieldConfig": {"defaults": fields, "overrides": list(overrides)}, "options": options or {},
            "targets": [{**query, "refId": LETTERS[i]} for i, query in enumerate(queries)]}
    if transformations:
        made["transformations"] = list(transformations)
    return made


def stat(title, description, queries, width=4, height=4, unit="none", thresholds=None, text="auto", size=None, **defaults):
    """Numbers. Without thresholds they have no colour: Grafana's own would turn everything above 80 red."""
    return panel("stat", title, description, queries, width, height, unit,
                 {"colorMode": "value" if thresholds or "mappings" in defaults else "none", "graphMode": "none", "justifyMode": "center",
                  "textMode": text,
                  **({"text": {"valueSize": size}} if size else {}),
                  "orientation": "auto", "wideLayout": True, "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
                 thresholds=thresholds or steps(("text", None)), color={"mode": "thresholds"}, **defaults)


def lines(title, description, queries, width=12, height=8, unit="none", stacked=False, bars=False, log=False, legend="list", overrides=(),
          **defaults):
    custom = {"axisSoftMax": 1 if unit in ("none", "ops") else 0, "drawStyle": "bars" if bars else "line",
              "lineWidth": 0 if stacked else 1 if bars else 2, "fillOpacity": 70 if stacked or bars else 0,
              "showPoints": "never", "spanNulls": False, "stacking": {"mode": "normal" if stacked else "none", "group": "A"}}
    if log:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    calcs = ["lastNotNull"] if legend == "table" else []
    return panel("timeseries", title, description, queries, width, height, unit,
                 {"legend": {"displayMode": legend, "placement": "right" if legend == "table" else "bottom", "showLegend": True, "calcs": calcs},
                  "tooltip": {"mode": "multi", "sort": "none" if stacked else "desc"}}, custom, overrides,
                 color={"mode": "palette-classic"}, **defaults)


def events(title, description, counter, by, inner=None, width=12, height=8, **defaults):
    """Bars that count what happened, one series for each kind that did. A bar covers a minute at least, or neighbours would count the same event.

    inner: labels by which the most is taken first, for counters that each replica of the operator exports.
    """
    def grown(window):
        increase = f"increase({counter}[{window})"
        return f"sum by ({by}) (max by ({inner}) ({increase}))" if inner else f"sum by ({by}) ({increase})"
    queries = [target(f"{grown('$__rate_interval]')} and on ({by}) ({grown('$__range] @ end()')} > 0)",
                      " ".join(f"{{{{{label}}}}}" for label in by.split(", ")))]
    return {**lines(title, description, queries, width, height, "none", bars=True, min=0, decimals=0, **defaults), "interval": "1m"}


def timeline(title, description, queries, width=WIDTH, height=6, unit="none", overrides=(), legend=False, **defaults):
    """A line of coloured stretches for each series."""
    return panel("state-timeline", title, description, queries, width, height, unit,
                 {"mergeValues": True, "showValue": "auto", "alignValue": "left", "rowHeight": 0.85, "tooltip": {"mode": "single", "sort": "none"},
                  "legend": {"displayMode": "list", "placement": "bottom", "showLegend": legend}},
                 {"lineWidth": 0, "fillOpacity": 75}, overrides, **defaults)


def bars(title, description, queries, width=12, height=8, unit="none", **defaults):
    return panel("bargauge", title, description, queries, width, height, unit,
                 {"displayMode": "basic", "orientation": "horizontal", "showUnfilled": True, "valueMode": "text", "namePlacement": "left",
                  "sizing": "auto",
                  "minVizHeight": 16, "maxVizHeight": 32, "minVizWidth": 8,
                  "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
                  "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
                 thresholds=steps(("blue", None)), color={"mode": "fixed", "fixedColor": "blue"}, **defaults)


def table(title, description, columns, width=12, height=8, keys=(), hidden=(), sort=None, descending=False, overrides=(), more=(), **defaults):
    """columns: (name, expression, {unit, ...}); keys: (label, name) that all of them share and that are shown first; more: labels after the first column.

    The queries are merged by their labels. hidden: labels that are not shown.
    """
    queries, renamed, order, given = [], {}, {}, list(overrides)
    for label, name in keys:
        renamed[label] = name
        order[label] = len(order)
    for i, (name, expression, properties) in enumerate(columns):
        field = f"Value #{LETTERS[i]}" if len(columns) > 1 else "Value"
        queries.append(target(expression, instant=True, table=True))
        if field in hidden:
            continue
        renamed[field] = name
        order[field] = len(order)
        for label, shown in more if i == 0 else ():
            renamed[label] = shown
            order[label] = len(order)
        if properties:
            given.append(override(name, **properties))
    transformations = ([{"id": "merge", "options": {}}] if len(columns) > 1 else []) + [
        {"id": "organize", "options": {"excludeByName": {name: True for name in ("Time", *hidden)}, "indexByName": order, "renameByName": renamed}}]
    return panel("table", title, description, queries, width, height, "short",
                 {"cellHeight": "sm", "showHeader": True, "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
                  "sortBy": [{"displayName": sort, "desc": descending}] if sort else []},
                 {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}, given, transformations,
                 thresholds=steps(("text", None)), color={"mode": "thresholds"}, **defaults)


def source_variable():
    return {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "hide": 0, "current": {}, "options": [],
            "regex": "",
            "refresh": 1, "includeAll": False, "multi": False}


def variable(name, label, query, regex="", sort=1, hidden=False, everything=False):
    made = {"type": "query", "name": name, "label": label, "datasource": SOURCE, "definition": query, "query": {"query": query, "refId": name},
            "refresh": 2, "sort": sort, "hide": 2 if hidden else 0, "includeAll": everything, "multi": everything, "current": {}, "options": [],
            "regex": regex, "skipUrlSync": hidden}
    if everything:
        made.update(allValue=".+", current={"selected": True, "text": ["All"], "value": ["$__all"]})
    return made


def annotation(name, colour, expression, sentence):
    """Vertical lines with a sentence, which may hold labels as {{label}}."""
    return {"name": name, "datasource": SOURCE, "enable": True, "hide": False, "iconColor": colour, "expr": expression, "step": "30s",
            "titleFormat": sentence, "textFormat": "", "tagKeys": "", "useValueForTime": False}


class Board:
    def __init__(self, uid, title, description, refresh, since, tags, variables, annotations=(), links=()):
        self.head = {"uid": uid, "title": title, "description": description, "tags": tags, "schemaVersion": 39, "version": 1, "editable": False,
                     "graphTooltip": 1, "refresh": refresh, "time": {"from": since, "to": "now"}, "timezone": "browser",
                     "annotations": {"list": list(annotations)}, "templating": {"list": [source_variable(), *variables]},
                     "links": [{"type": "link", "title": name, "url": url, "icon": "dashboard", "keepTime": True, "includeVars": False,
                                "asDropdown": False, "targetBlank": False, "tags": [], "tooltip": tip} for name, url, tip in links]}
        self.panels, self.number, self.y = [], 0, 0

    def row(self, title, *inside, collapsed=True):
        """A question, and the panels that answer it."""
        self.number += 1
        made = {"type": "row", "id": self.number, "title": title, "collapsed": collapsed, "gridPos": {"x": 0, "y": self.y, "w": WIDTH, "h": 1},
                "panels": []}
        self.panels.append(made)
        end = self._place(inside, self.y + 1, made["panels"] if collapsed else self.panels)
        self.y = self.y + 1 if collapsed else end

    def _place(self, inside, y, where):
        x = height = 0
        for each in inside:
            self.number += 1
            size = each["gridPos"]
            if x + size["w"] > WIDTH:
                x, y, height = 0, y + height, 0
            where.append({"id": self.number, **each, "gridPos": {"x": x, "y": y, **size}})
            x, height = x + size["w"], max(height, size["h"])
        return y + height

    def json(self):
        return {**self.head, "panels": self.panels}
