// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/graph_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "operator/planner/model/limits.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr Index kMostEdges = Index{1} << 20;
constexpr double kMostMilliseconds = 1000 * kMostLayerSeconds;
constexpr double kStateFactor = 4;  // Adam in fp32, as PipeDream and DAPPLE count
constexpr std::string_view kSeparator = " -- ";

struct Node {
  std::string id, description;
  int line = 0;
  double forward = 0, backward = 0, activation = 0, parameters = 0;
  bool removed = false;
};

struct Edge {
  std::string_view from, to;
  int line = 0;
};

// Foreign text in a message: at most 60 printable characters.
std::string clipped(std::string_view text) {
  constexpr Index kMost = 60;
  std::string result = "\"";
  for (const char c : text.substr(0, kMost)) {
    result += static_cast<unsigned char>(c) < 0x20 || c == '\x7f' ? '?' : c;
  }
  return result + (text.size() > kMost ? "...\"" : "\"");
}

std::string_view without_blanks(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const Index at = line.find(kSeparator);
    fields.push_back(without_blanks(line.substr(0, at)));
    if (at == std::string_view::npos) return fields;
    line.remove_prefix(at + kSeparator.size());
  }
}

// node9 before node10: runs of digits compare as numbers.
bool natural_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  Index i = 0;
  Index j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const auto number = [&](std::string_view text, Index& at) {
        while (at + 1 < text.size() && text[at] == '0' && digit(text[at + 1])) ++at;
        const Index begin = at;
        while (at < text.size() && digit(text[at])) ++at;
        return text.substr(begin, at - begin);
      };
      const std::string_view x = number(a, i);
      const std::string_view y = number(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  const Index rest_a = a.size() - i;
  const Index rest_b = b.size() - j;
  return rest_a != rest_b ? rest_a < rest_b : a < b;  // node01 and node1 differ
}

class GraphReader {
 public:
  GraphReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Result<Model> read() {
    if (text_.size() > kMostTextBytes) return invalid(name_ + ": longer than 64 MiB");
    WEIR_OK(read_lines());
    if (nodes_.empty()) return invalid(name_ + ": no node");
    WEIR_OK(connect());
    WEIR_OK(sort());
    clean_up();
    return model();
  }

 private:
  Error bad(int line, const std::string& reason) const {
    return {Code::kInvalid, name_ + ":" + std::to_string(line) + ": " + reason};
  }

  Status read_lines() {
    int number = 0;
    for (std::string_view rest = text_; !rest.empty();) {
      const Index end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      ++number;
      if (without_blanks(line).empty()) continue;
      const bool edge = line.front() == ' ' || line.front() == '\t';
      WEIR_OK(edge ? read_edge(without_blanks(line), number)
                   : read_node(without_blanks(line), number));
    }
    return Unit{};
  }

  Status read_edge(std::string_view line, int number) {
    const std::vector<std::string_view> ends = fields_of(line);
    if (ends.size() != 2 || ends[0].empty() || ends[1].empty()) {
      return bad(number, "an edge is two node ids, found " + clipped(line));
    }
    if (ends[0] == ends[1]) return bad(number, "edge from " + clipped(ends[0]) + " to itself");
    if (edges_.size() == kMostEdges) return bad(number, "more than 1048576 edges");
    edges_.push_back({ends[0], ends[1], number});
    return Unit{};
  }

  Status read_node(std::string_view line, int number) {
    const std::vector<std::string_view> fields = fields_of(line);
    if (fields.size() < 3) {
      return bad(number, "a node has id, description and metadata between \" -- \", found " +
                             std::to_string(fields.size()) + " of 3");
    }
    if (fields[0].empty()) return bad(number, "the node's id is empty");
    if (nodes_.size() == kMostLayers) return bad(number, "more than 65536 nodes");
    Node node{.id = std::string(fields[0]), .description = std::string(fields[1]), .line = number};
    WEIR_OK(check_entries(fields[2], number));
    WEIR_TRY(node.forward, value(fields[2], "forward_compute_time", kMostMilliseconds, number));
    WEIR_TRY(node.backward, value(fields[2], "backward_compute_time", kMostMilliseconds, number));
    WEIR_TRY(node.activation, value(fields[2], "activation_size", double{kMostBytes}, number));
    WEIR_TRY(node.parameters, value(fields[2], "parameter_size", double{kMostBytes}, number));
    const auto [known, added] = index_.emplace(node.id, static_cast<int>(nodes_.size()));
    if (!added) {
      return bad(number, "duplicate node id " + clipped(node.id) + " (first at line " +
                             std::to_string(nodes_[static_cast<Index>(known->second)].line) + ")");
    }
    nodes_.push_back(std::move(node));
    return Unit{};
  }

  // Each entry has a key: "1,5" is no number with a decimal comma.
  Status check_entries(std::string_view metadata, int number) const {
    for (std::string_view rest = metadata; !rest.empty();) {
      const Index comma = rest.find(',');
      const std::string_view entry = without_blanks(rest.substr(0, comma));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
      if (!entry.empty() && entry.find('=') == std::string_view::npos) {
        return bad(number, "expected key=value, key=value, found " + clipped(entry));
      }
    }
    return Unit{};
  }

  // `key=NUMBER` or `key=[NUMBER; ...]` (the sum) in "key=value, key=value".
  Result<double> value(std::string_view metadata, std::string_view key, double most,
                       int number) const {
    const std::string wanted(key);
    for (std::string_view rest = metadata; !rest.empty();) {
      const Index comma = rest.find(',');
      const std::string_view entry = without_blanks(rest.substr(0, comma));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
      if (!entry.starts_with(key) || entry.size() == key.size() || entry[key.size()] != '=') {
        continue;
      }
      std::string_view text = without_blanks(entry.substr(key.size() + 1));
      const std::string shown = clipped(text);
      const bool list = text.size() >= 2 && text.front() == '[' && text.back() == ']';
      if (list) text = text.substr(1, text.size() - 2);
      double sum = 0;
      for (bool more = true; more;) {
        const Index end = list ? text.find(';') : std::string_view::npos;
        const std::string_view item = without_blanks(text.substr(0, end));
        double parsed = 0;
        const auto [stop, failed] = std::from_chars(item.data(), item.data() + item.size(), parsed);
        if (failed != std::errc{} || stop != item.data() + item.size() || !std::isfinite(parsed) ||
            parsed < 0) {
          return bad(number, wanted + ": expected a number >= 0, got " + shown);
        }
        sum += parsed;
        more = end != std::string_view::npos;
        if (more) text.remove_prefix(end + 1);
      }
      if (sum > most) return bad(number, wanted + ": " + shown + " is too large");
      return sum;
    }
    return bad(number, "missing " + wanted);
  }

  Status connect() {
    consumers_.resize(nodes_.size());
    for (const Edge& edge : edges_) {
      std::array<int, 2> ends{};
      for (const auto& [side, id] : {std::pair{0, edge.from}, std::pair{1, edge.to}}) {
        const auto found = index_.find(std::string(id));
        if (found == index_.end()) return bad(edge.line, "edge to unknown node " + clipped(id));
        ends[static_cast<Index>(side)] = found->second;
      }
      consumers_[static_cast<Index>(ends[0])].emplace_back(ends[1], edge.line);
    }
    for (auto& list : consumers_) {  // duplicate edges count once, at their first line
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end(),
                             [](const auto& a, const auto& b) { return a.first == b.first; }),
                 list.end());
    }
    return Unit{};
  }

  // order_: Kahn, the smallest id first, so that it does not depend on the order of lines.
  Status sort() {
    std::vector<int> open(nodes_.size(), 0);
    for (const auto& list : consumers_) {
      for (const auto& consumer : list) ++open[static_cast<Index>(consumer.first)];
    }
    const auto later = [&](int a, int b) {
      return natural_less(nodes_[static_cast<Index>(b)].id, nodes_[static_cast<Index>(a)].id);
    };
    std::priority_queue<int, std::vector<int>, decltype(later)> free(later);
    for (Index i = 0; i < nodes_.size(); ++i) {
      if (open[i] == 0) free.push(static_cast<int>(i));
    }
    while (!free.empty()) {
      const int node = free.top();
      free.pop();
      order_.push_back(node);
      for (const auto& consumer : consumers_[static_cast<Index>(node)]) {
        if (--open[static_cast<Index>(consumer.first)] == 0) free.push(consumer.first);
      }
    }
    if (order_.size() == nodes_.size()) return Unit{};
    return name_cycle(open);
  }

  // Every node that never became free has a producer that never did: walk back until one repeats.
  Error name_cycle(const std::vector<int>& open) const {
    std::vector<std::pair<int, int>> producer(nodes_.size(), {-1, 0});  // one of them, and the line
    for (Index i = 0; i < nodes_.size(); ++i) {
      if (open[i] == 0) continue;
      for (const auto& [to, line] : consumers_[i]) {
        auto& known = producer[static_cast<Index>(to)];
        if (known.first < 0) known = {static_cast<int>(i), line};
      }
    }
    int at = 0;
    while (open[static_cast<Index>(at)] == 0) ++at;
    std::vector<bool> seen(nodes_.size(), false);
    for (; !seen[static_cast<Index>(at)]; at = producer[static_cast<Index>(at)].first) {
      seen[static_cast<Index>(at)] = true;
    }
    std::vector<int> cycle;
    int line = 0;
    for (int node = at; cycle.empty() || node != at;) {
      cycle.push_back(node);
      line = std::max(line, producer[static_cast<Index>(node)].second);
      node = producer[static_cast<Index>(node)].first;
    }
    std::ranges::reverse(cycle);
    std::rotate(cycle.begin(),
                std::ranges::min_element(cycle,
                                         [&](int a, int b) {
                                           return natural_less(nodes_[static_cast<Index>(a)].id,
                                                               nodes_[static_cast<Index>(b)].id);
                                         }),
                cycle.end());
    constexpr Index kMostNamed = 8;
    std::string text = "cycle: ";
    for (Index i = 0; i < std::min(cycle.size(), kMostNamed); ++i) {
      text += nodes_[static_cast<Index>(cycle[i])].id.substr(0, 60) + " -> ";
    }
    if (cycle.size() > kMostNamed) text += "... -> ";
    return bad(line, text + nodes_[static_cast<Index>(cycle.front())].id.substr(0, 60));
  }

  // Removes every source that is an input, and in the same pass every __getitem__ without
  // consumers.
  void clean_up() {
    std::vector<bool> source(nodes_.size(), true);
    for (const auto& list : consumers_) {
      for (const auto& consumer : list) source[static_cast<Index>(consumer.first)] = false;
    }
    for (Index i = 0; i < nodes_.size(); ++i) {
      const std::string& text = nodes_[i].description;
      if (source[i] && text.starts_with("Input")) nodes_[i].removed = true;
      if (consumers_[i].empty() && text.starts_with("__getitem__")) nodes_[i].removed = true;
    }
  }

  Result<Model> model() const {
    Model model;
    model.scaling = Scaling::kProportional;
    model.edges_given = true;
    model.state_factor = kStateFactor;
    std::vector<int> layer_of(nodes_.size(), -1);
    for (const int at : order_) {
      const Node& node = nodes_[static_cast<Index>(at)];
      if (node.removed) continue;
      layer_of[static_cast<Index>(at)] = static_cast<int>(model.layers.size());
      const auto nanoseconds = [](double milliseconds) {
        return std::chrono::nanoseconds(std::llround(milliseconds * 1e6));
      };
      Layer layer;
      layer.id = node.id;
      layer.description = node.description;
      layer.parameter_bytes = std::llround(node.parameters);
      layer.output_bytes_per_sample = std::llround(node.activation);
      layer.stash_bytes_per_sample = layer.output_bytes_per_sample;
      layer.times[""] = {{1, nanoseconds(node.forward), nanoseconds(node.backward)}};
      model.layers.push_back(std::move(layer));
    }
    if (model.layers.empty()) return invalid(name_ + ": no node but inputs");
    for (Index from = 0; from < nodes_.size(); ++from) {
      for (const auto& consumer : consumers_[from]) {
        const std::pair edge{layer_of[from], layer_of[static_cast<Index>(consumer.first)]};
        if (edge.first >= 0 && edge.second >= 0) model.edges.push_back(edge);
      }
    }
    std::ranges::sort(model.edges);
    return model;
  }

  const std::string_view text_;
  const std::string name_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::unordered_map<std::string, int> index_;
  std::vector<std::vector<std::pair<int, int>>> consumers_;  // (node, line), by node
  std::vector<int> order_;
};

}  // namespace

Result<Model> decode_graph(std::string_view text, std::string_view name) {
  return GraphReader(text, name).read();
}

bool looks_like_graph(std::string_view text) {
  const Index first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] != '{' && text[first] != '[';
}

}  // namespace weir::planner
