// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/cluster_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/planner/model/json_lines.h"
#include "operator/planner/model/limits.h"
#include "worker/base/text.h"
#include "worker/base/units.h"
#include "worker/base/utf8.h"

namespace weir::planner {
namespace {

using nlohmann::json;

constexpr const char* kClusterVersion = "weir.dev/cluster/v1";
constexpr double kMostRate = 1e15;     // B/s: a petabyte a second is a wrong unit
constexpr double kMostLatency = 3600;  // seconds
constexpr double kMostFactor = 1e6;

// Reads one document; every error is a pointer and a reason.
class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Result<Cluster> read() {
    json document;
    WEIR_OK(parse_json(text_, name_, document));
    if (!document.is_object()) return bad("", "expected an object");
    const auto version = document.find("apiVersion");
    if (version == document.end() || !version->is_string()) {
      return bad("/apiVersion", "expected \"" + std::string(kClusterVersion) + "\"");
    }
    if (*version != kClusterVersion) {
      return bad("/apiVersion", "unknown version " + version->dump() + ", expected \"" +
                                    std::string(kClusterVersion) + "\"");
    }
    WEIR_OK(read_classes(document));
    WEIR_OK(read_servers(document));
    WEIR_OK(read_links(document));
    WEIR_OK(check_fields(document));
    return std::move(cluster_);
  }

 private:
  using Fields = std::vector<std::string>;

  Error bad(const std::string& pointer, const std::string& reason) const {
    return json_error(text_, name_, pointer.empty() ? "/" : pointer, reason);
  }

  static std::string shown(const json& object, const char* field) {
    const auto found = object.find(field);
    if (found == object.end()) return "nothing";
    std::string text = found->dump(-1, ' ', false, json::error_handler_t::replace);
    constexpr std::size_t kMost = 40;
    if (text.size() > kMost) text = text.substr(0, kMost) + "...";
    return text;
  }

  struct Range {
    const char* what;
    double least, most;
    bool open = false;  // least itself is refused
  };
  Result<double> number(const json& object, const std::string& path, const char* field,
                        const Range& range, std::optional<double> missing) const {
    const auto found = object.find(field);
    if (found == object.end() && missing) return *missing;
    if (found != object.end() && found->is_number()) {
      const auto value = found->get<double>();
      if (std::isfinite(value) && value <= range.most &&
          (range.open ? value > range.least : value >= range.least)) {
        return value;
      }
    }
    return bad(path + "/" + field,
               std::string("expected ") + range.what + ", got " + shown(object, field));
  }

  Result<std::string> text(const json& object, const std::string& path, const char* field,
                           bool required) const {
    const auto found = object.find(field);
    if (found == object.end() && !required) return std::string();
    if (found == object.end() || !found->is_string() || found->get<std::string>().empty()) {
      return bad(path + "/" + field, "expected a name, got " + shown(object, field));
    }
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; };
    auto name = found->get<std::string>();
    if (std::ranges::any_of(name, control)) {
      return bad(path + "/" + field, "a control character in the name " + shown(object, field));
    }
    return name;
  }

  Status read_classes(const json& document) {
    const auto classes = document.find("deviceClasses");
    if (classes == document.end() || !classes->is_array() || classes->empty()) {
      return bad("/deviceClasses", "expected a list of device classes");
    }
    for (std::size_t i = 0; i < classes->size(); ++i) {
      const json& entry = (*classes)[i];
      const std::string path = "/deviceClasses/" + std::to_string(i);
      if (!entry.is_object()) return bad(path, "expected an object");
      DeviceClass it;
      WEIR_TRY(it.name, text(entry, path, "name", true));
      const Range bytes{"a number of bytes >= 0", 0, double{kMostBytes}};
      WEIR_TRY(const double memory, number(entry, path, "memoryBytes", bytes, 0));
      it.memory_bytes = static_cast<std::int64_t>(memory);
      WEIR_TRY(it.memory_reserve,
               number(entry, path, "memoryReserve", {"a fraction from 0 to 0.95", 0, 0.95}, 0.10));
      WEIR_TRY(it.speed_factor,
               number(entry, path, "speedFactor", {"a factor > 0", 0, kMostFactor, true}, 1.0));
      if (class_named(it.name) != nullptr) {
        return bad(path + "/name", "device class \"" + it.name + "\" is there twice");
      }
      cluster_.classes.push_back(std::move(it));
    }
    return Unit{};
  }

  const DeviceClass* class_named(const std::string& name) const {
    const auto found = std::ranges::find_if(cluster_.classes,
                                            [&](const DeviceClass& it) { return it.name == name; });
    return found == cluster_.classes.end() ? nullptr : &*found;
  }

  Status read_servers(const json& document) {
    const auto servers = document.find("servers");
    if (servers == document.end() || !servers->is_array() || servers->empty()) {
      return bad("/servers", "expected a list of servers");
    }
    for (std::size_t i = 0; i < servers->size(); ++i) {
      WEIR_OK(read_server((*servers)[i], "/servers/" + std::to_string(i)));
    }
    if (cluster_.devices.empty()) return bad("/servers", "no server has a device");
    return Unit{};
  }

  Status read_server(const json& entry, const std::string& path) {
    if (!entry.is_object()) return bad(path, "expected an object");
    Device device;
    WEIR_TRY(device.node, text(entry, path, "name", true));
    if (!server_names_.insert(device.node).second) {
      return bad(path + "/name", "server \"" + device.node + "\" is there twice");
    }
    WEIR_TRY(device.device_class, text(entry, path, "class", true));
    const DeviceClass* known = class_named(device.device_class);
    if (known == nullptr) {
      return bad(path + "/class", "no device class \"" + device.device_class + "\" (known: " +
                                      joined(cluster_.classes, ", ", &DeviceClass::name) + ")");
    }
    device.memory_bytes = known->memory_bytes;
    WEIR_TRY(device.worker_group, text(entry, path, "workerGroup", false));
    WEIR_OK(read_devices(entry, path, device));
    if (!entry.contains("local")) return Unit{};
    LinkRate local = link_between(cluster_, "", "");
    local.from_node = local.to_node = device.node;
    WEIR_OK(read_link(entry["local"], path + "/local", local));
    cluster_.links.push_back(std::move(local));
    return Unit{};
  }

  // `devices`: a number, or a list of {"pod", "local"}.
  Status read_devices(const json& entry, const std::string& path, const Device& like) {
    const auto devices = entry.find("devices");
    const bool list = devices != entry.end() && devices->is_array();
    std::size_t count = list ? devices->size() : 1;
    if (devices != entry.end() && !list) {
      const Range range{"a whole number from 0 to 4096, or a list", 0, double{kMostDevices}};
      WEIR_TRY(const double value, number(entry, path, "devices", range, std::nullopt));
      if (value != std::floor(value)) {
        return bad(path + "/devices", "expected a whole number, got " + shown(entry, "devices"));
      }
      count = static_cast<std::size_t>(value);
    }
    for (std::size_t d = 0; d < count; ++d) {
      Device device = like;
      device.local = static_cast<int>(d);
      device.pod = count == 1 && !list ? like.node : like.node + "-" + std::to_string(d);
      if (list) {
        const std::string here = path + "/devices/" + std::to_string(d);
        const json& one = (*devices)[d];
        if (!one.is_object()) return bad(here, "expected an object");
        WEIR_TRY(const std::string pod, text(one, here, "pod", false));
        if (!pod.empty()) device.pod = pod;
        const Range range{"an index from 0", 0, double{kMostDevices}};
        WEIR_TRY(const double local, number(one, here, "local", range, double(d)));
        device.local = static_cast<int>(local);
      }
      if (!ranks_.insert({device.pod, device.local}).second) {
        return bad(path + "/devices", "pod \"" + device.pod + "\" with local " +
                                          std::to_string(device.local) + " is there twice");
      }
      cluster_.devices.push_back(std::move(device));
      if (cluster_.devices.size() > kMostDevices) return bad(path, "more than 4096 devices");
    }
    return Unit{};
  }

  // bandwidth (a number or a curve), latency and availableShare into `link`; absent ones stay.
  Status read_link(const json& entry, const std::string& path, LinkRate& link) const {
    if (!entry.is_object()) return bad(path, "expected an object");
    const auto bandwidth = entry.find("bandwidth");
    if (bandwidth != entry.end() && bandwidth->is_object()) {
      WEIR_TRY(link.curve, read_curve(*bandwidth, path + "/bandwidth"));
    } else if (bandwidth != entry.end()) {
      const Range range{"bytes per second > 0", 0, kMostRate, true};
      WEIR_TRY(link.bytes_per_second, number(entry, path, "bandwidth", range, std::nullopt));
      link.curve.reset();
    }
    WEIR_TRY(const double latency, number(entry, path, "latency", {"seconds >= 0", 0, kMostLatency},
                                          to_seconds(link.latency)));
    link.latency = from_seconds(latency);
    const Range share{"a share above 0 and at most 1", 0, 1, true};
    WEIR_TRY(link.available_share,
             number(entry, path, "availableShare", share, link.available_share));
    return Unit{};
  }

  Result<RateCurve> read_curve(const json& entry, const std::string& path) const {
    const auto curve = entry.find("curve");
    const bool known = curve != entry.end() && curve->is_object();
    const auto terms = known ? curve->find("log2mb") : curve;
    if (!known || terms == curve->end() || !terms->is_array() || terms->size() != 3 ||
        !std::all_of(terms->begin(), terms->end(), [](const json& t) { return t.is_number(); })) {
      return bad(path,
                 "expected bytes per second or {\"curve\": {\"log2mb\": [a, b, c], \"max\": "
                 "bytes per second}}");
    }
    RateCurve result{(*terms)[0], (*terms)[1], (*terms)[2]};
    const Range range{"bytes per second > 0", 0, kMostRate, true};
    WEIR_TRY(result.most_bytes_per_second,
             number(*curve, path + "/curve", "max", range, std::nullopt));
    return result;
  }

  Status read_links(const json& document) {
    const auto links = document.find("links");
    if (links == document.end()) return Unit{};
    if (!links->is_object()) return bad("/links", "expected an object");
    LinkRate usual = link_between(cluster_, "", "-");
    if (links->contains("default")) {
      WEIR_OK(read_link((*links)["default"], "/links/default", usual));
      cluster_.default_bytes_per_second = usual.bytes_per_second;
      cluster_.default_latency = usual.latency;
      cluster_.default_share = usual.available_share;
      cluster_.default_curve = usual.curve;
    }
    const auto pairs = links->find("pairs");
    if (pairs == links->end()) return Unit{};
    if (!pairs->is_array()) return bad("/links/pairs", "expected a list");
    for (std::size_t i = 0; i < pairs->size(); ++i) {
      WEIR_OK(read_pair((*pairs)[i], "/links/pairs/" + std::to_string(i), usual));
    }
    return Unit{};
  }

  Status read_pair(const json& entry, const std::string& path, LinkRate link) {
    if (!entry.is_object()) return bad(path, "expected an object");
    WEIR_TRY(link.from_node, text(entry, path, "from", true));
    WEIR_TRY(link.to_node, text(entry, path, "to", true));
    for (const auto& [name, field] : {std::pair(link.from_node, "/from"), {link.to_node, "/to"}}) {
      if (!server_names_.contains(name)) return bad(path + field, "no server \"" + name + "\"");
    }
    if (link.from_node == link.to_node) {
      return bad(path + "/to", "the link inside a server is its \"local\"");
    }
    WEIR_OK(read_link(entry, path, link));
    const auto one_way = entry.find("oneWay");
    if (one_way != entry.end() && !one_way->is_boolean()) {
      return bad(path + "/oneWay", "expected true or false, got " + shown(entry, "oneWay"));
    }
    cluster_.links.push_back(link);
    if (one_way == entry.end() || !one_way->get<bool>()) {
      std::swap(link.from_node, link.to_node);
      cluster_.links.push_back(std::move(link));
    }
    return Unit{};
  }

  // A misspelt field would silently count as absent. The shape is known to be right here.
  Status check_fields(const json& document) const {
    const Fields kLink = {"bandwidth", "latency", "availableShare"};
    WEIR_OK(only(document, "/", {"apiVersion", "deviceClasses", "servers", "links"}));
    for (std::size_t i = 0; i < document["deviceClasses"].size(); ++i) {
      WEIR_OK(only(document["deviceClasses"][i], "/deviceClasses/" + std::to_string(i),
                   {"name", "memoryBytes", "memoryReserve", "speedFactor"}));
    }
    for (std::size_t i = 0; i < document["servers"].size(); ++i) {
      const json& server = document["servers"][i];
      const std::string path = "/servers/" + std::to_string(i);
      WEIR_OK(only(server, path, {"name", "class", "devices", "workerGroup", "local"}));
      if (server.contains("local")) WEIR_OK(only(server["local"], path + "/local", kLink));
      if (!server.contains("devices") || !server["devices"].is_array()) continue;
      for (std::size_t d = 0; d < server["devices"].size(); ++d) {
        WEIR_OK(
            only(server["devices"][d], path + "/devices/" + std::to_string(d), {"pod", "local"}));
      }
    }
    if (!document.contains("links")) return Unit{};
    const json& links = document["links"];
    WEIR_OK(only(links, "/links", {"default", "pairs"}));
    if (links.contains("default")) WEIR_OK(only(links["default"], "/links/default", kLink));
    for (std::size_t i = 0; links.contains("pairs") && i < links["pairs"].size(); ++i) {
      WEIR_OK(only(links["pairs"][i], "/links/pairs/" + std::to_string(i),
                   {"from", "to", "oneWay", "bandwidth", "latency", "availableShare"}));
    }
    return Unit{};
  }

  Status only(const json& object, const std::string& path, const Fields& fields) const {
    for (const auto& [field, value] : object.items()) {
      if (std::ranges::find(fields, field) != fields.end()) continue;
      return bad(
          path, "no field is named " + in_quotes(field) + " (known: " + joined(fields, ", ") + ")");
    }
    return Unit{};
  }

  const std::string_view text_;
  const std::string& name_;
  Cluster cluster_;
  std::set<std::string> server_names_;
  std::set<std::pair<std::string, int>> ranks_;
};

}  // namespace

Result<Cluster> decode_cluster(std::string_view text, const std::string& name) {
  return Reader(text, name).read();
}

}  // namespace weir::planner
