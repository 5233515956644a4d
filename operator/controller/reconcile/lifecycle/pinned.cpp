// SPDX-License-Identifier: Apache-2.0
// Placement mode Pinned: pods are made with a scheduling gate. When all exist, each gets a node,
// and its gate is opened. The nodes are as close together as the workers fit, by
// placement.topologyKeys. The resources that other jobs use are not known here, so the scheduler
// decides, and after a scheduling timeout the next best nodes are tried.
#include <map>
#include <set>

#include "operator/api/names.h"
#include "operator/api/resources.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

constexpr auto kHostname = "kubernetes.io/hostname";
constexpr std::chrono::seconds kLookAgain{30};  // a change of a node wakes no job
constexpr std::size_t kMostChoices = 16;        // one for each scheduling timeout in a row

struct Candidate {
  const api::Node* node = nullptr;
  api::Resources free;
};
using Nodes = std::vector<Candidate>;
using Choice = std::map<const Slot*, const api::Node*>;

bool gated(const Slot& slot) {
  if (!slot.pod) return false;
  const auto& gates = slot.pod->gates;
  return std::ranges::find(gates, api::kPlanGate) != gates.end();
}

const api::WorkerGroup& group_of(const View& view, const Slot& slot) {
  const auto& groups = view.spec().worker_groups;
  return *std::ranges::find_if(groups, [&](const auto& group) { return group.name == slot.group; });
}

std::string label(const api::Node& node, const std::string& key) {
  const auto found = node.meta.labels.find(key);
  return found == node.meta.labels.end() ? "" : found->second;
}

bool take(Candidate& candidate, const api::Resources& requests) {
  for (const auto& [resource, wanted] : requests) {
    const auto have = candidate.free.find(resource);
    if (have == candidate.free.end() || have->second < wanted) return false;
  }
  for (const auto& [resource, wanted] : requests) candidate.free[resource] -= wanted;
  return true;
}

// Nodes that may get a worker, with their free resources; close nodes are next to each other.
// Resources of this job's running pods are not free.
Nodes candidates(const View& view) {
  Nodes nodes;
  for (const auto& [name, node] : *view.snapshot.nodes) {
    if (!node->ready || !node->schedulable || label(*node, kHostname).empty()) continue;
    Candidate candidate{node.get(), {}};
    for (const auto& [resource, text] : node->allocatable) {
      if (const auto value = api::read_quantity(text)) candidate.free[resource] = *value;
    }
    for (const auto& slot : view.slots) {
      if (!slot.pod || gated(slot) || slot.pod->node != name) continue;
      take(candidate, api::requests_of(group_of(view, slot)).value_or(api::Resources{}));
    }
    nodes.push_back(std::move(candidate));
  }
  const auto place = [&](const Candidate& candidate) {
    std::vector<std::string> where;
    for (const auto& key : view.spec().topology_keys) where.push_back(label(*candidate.node, key));
    where.push_back(candidate.node->meta.name);
    return where;
  };
  std::ranges::sort(nodes, [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return nodes;
}

bool suits(const Draft& draft, const api::WorkerGroup& group, const api::Node& node,
           bool last_resort) {
  const auto& avoided = draft.status.avoided_nodes;
  if (std::ranges::any_of(avoided, [&](const auto& each) {
        return each.node == node.meta.name && !(last_resort && is_last_resort(each));
      }))
    return false;
  for (const auto& [key, value] : api::node_selector_of(group)) {
    if (label(node, key) != value) return false;
  }
  return api::tolerates(group, node.taints);
}

// The first node that takes a worker of the group, and what it has left then; end() if none does.
Nodes::iterator first_fit(const Draft& draft, const api::WorkerGroup& group, Nodes& nodes,
                          bool last_resort) {
  const auto requests = api::requests_of(group).value_or(api::Resources{});
  return std::ranges::find_if(nodes, [&](Candidate& candidate) {
    return suits(draft, group, *candidate.node, last_resort) && take(candidate, requests);
  });
}

// First fit in the order of the nodes; nothing if a worker finds no node.
std::optional<Choice> fit(const View& view, const Draft& draft, Nodes nodes, bool last_resort) {
  Choice choice;
  for (const auto& slot : view.slots) {
    if (slot.spare || !gated(slot)) continue;
    const auto found = first_fit(draft, group_of(view, slot), nodes, last_resort);
    if (found == nodes.end()) return std::nullopt;
    choice[&slot] = found->node;
  }
  return choice;
}

// Appends choices of nodes in the domains that have room for all workers, the narrowest domain
// first: nodes that agree in all topology keys, then in all but the last, ... then all nodes.
void add_choices(const View& view, const Draft& draft, bool last_resort,
                 std::vector<Choice>& found) {
  const Nodes all = candidates(view);
  for (std::size_t keys = view.spec().topology_keys.size() + 1; keys-- > 0;) {
    std::map<std::vector<std::string>, Nodes> domains;
    for (const auto& candidate : all) {
      std::vector<std::string> domain;
      for (std::size_t k = 0; k < keys; ++k)
        domain.push_back(label(*candidate.node, view.spec().topology_keys[k]));
      domains[domain].push_back(candidate);
    }
    for (const auto& [domain, nodes] : domains) {
      if (found.size() == kMostChoices) return;
      auto choice = fit(view, draft, nodes, last_resort);
      if (choice && std::ranges::find(found, *choice) == found.end())
        found.push_back(std::move(*choice));
    }
  }
}

std::vector<Choice> choices(const View& view, const Draft& draft) {
  std::vector<Choice> found;
  add_choices(view, draft, false, found);
  if (std::ranges::any_of(draft.status.avoided_nodes, is_last_resort)) {
    add_choices(view, draft, true, found);
  }
  return found;
}

// Adds nodes for spares, those without workers of the job first: a spare is of no use if it is lost
// with a worker. One that finds no node waits for the next pass.
void add_spares(const View& view, Draft& draft, Choice& choice) {
  Nodes nodes = candidates(view);
  std::set<std::string> used;
  for (const auto& slot : view.slots) {
    const auto chosen = choice.find(&slot);
    if (slot.pod && !slot.pod->node.empty()) used.insert(slot.pod->node);
    if (chosen == choice.end()) {
      if (!slot.spare && slot.pod->node.empty()) return;  // the scheduler first binds it
      continue;
    }
    used.insert(chosen->second->meta.name);
    for (Candidate& candidate : nodes) {
      if (candidate.node == chosen->second)
        take(candidate, api::requests_of(group_of(view, slot)).value_or(api::Resources{}));
    }
  }
  std::ranges::stable_partition(
      nodes, [&](const Candidate& one) { return !used.contains(one.node->meta.name); });
  for (const auto& slot : view.slots) {
    if (!slot.spare || !gated(slot) || worker_ended(*slot.pod) || slot.pod->meta.deleting) continue;
    auto found = first_fit(draft, group_of(view, slot), nodes, false);
    if (found == nodes.end()) found = first_fit(draft, group_of(view, slot), nodes, true);
    if (found != nodes.end()) {
      choice[&slot] = found->node;
    } else {
      draft.wake_at(view.now() + kLookAgain);
    }
  }
}

}  // namespace

std::vector<std::string> gates_of(const api::JobSpec& spec) {
  return spec.placement_mode == api::PlacementMode::kPinned
             ? std::vector<std::string>{api::kPlanGate}
             : std::vector<std::string>{};
}

void open_gates(const View& view, Draft& draft) {
  bool any = false;
  for (const auto& slot : view.slots) {
    any = any || gated(slot);
    if (slot.spare) continue;
    if (!slot.pod || worker_ended(*slot.pod) || slot.pod->meta.deleting) return;
  }
  if (!any) return;
  auto found = choices(view, draft);
  if (found.empty()) {
    draft.set("PodsScheduled", "False", "Unschedulable",
              "placement.mode Pinned: no set of nodes has room for all workers, of " +
                  std::to_string(view.snapshot.nodes->size()) + " nodes");
    return draft.wake_at(view.now() + kLookAgain);
  }
  const auto index = static_cast<std::size_t>(draft.status.scheduling_timeouts) % found.size();
  add_spares(view, draft, found[index]);
  for (const auto& slot : view.slots) {
    const auto node = found[index].find(&slot);
    if (node == found[index].end()) continue;
    OpenGate open{slot.pod->meta.name, slot.pod->meta.resource_version,
                  label(*node->second, kHostname), slot.pod->gates};
    std::erase(open.gates_left, api::kPlanGate);
    draft.ask(std::move(open));
  }
}

}  // namespace weir::reconcile
