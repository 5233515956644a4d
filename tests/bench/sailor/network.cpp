// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sailor/network.h"

#include <nlohmann/json.hpp>

#include "operator/planner/model/json_lines.h"
#include "operator/planner/model/sailor_reader.h"

namespace weir::planner {
namespace {

using nlohmann::json;

constexpr double kMostCoefficient = 1e15;

struct CurveReader : SailorReader {
  Result<RateCurve> curve(const json& value, const std::string& pointer) const {
    if (!value.is_array() || value.size() != 2 || !value[0].is_array() || value[0].size() != 3) {
      return bad(pointer, "expected [[a, b, c], max]");
    }
    RateCurve curve;
    const std::string coefficients = pointer + "/0/";
    WEIR_TRY(curve.a, number(value[0][0], coefficients + "0", -kMostCoefficient, kMostCoefficient));
    WEIR_TRY(curve.b, number(value[0][1], coefficients + "1", -kMostCoefficient, kMostCoefficient));
    WEIR_TRY(curve.c, number(value[0][2], coefficients + "2", -kMostCoefficient, kMostCoefficient));
    WEIR_TRY(curve.most_bytes_per_second, number(value[1], pointer + "/1", 1, kMostCoefficient));
    return curve;
  }
};

}  // namespace

Result<SailorNetwork> decode_sailor_network(std::string_view text, const std::string& name) {
  const CurveReader reader{{text, name}};
  json document;
  WEIR_OK(parse_json(text, name, document));
  WEIR_OK(reader.object(document, "/"));
  SailorNetwork network;
  for (const auto& [kind, curves] :
       {std::pair{"inter", &network.between}, std::pair{"intra", &network.inside}}) {
    const std::string at = std::string("/") + kind;
    const auto found = document.find(kind);
    if (found == document.end()) return reader.bad(at, "missing");
    WEIR_OK(reader.object(*found, at));
    for (const auto& [device, counts] : found->items()) {
      WEIR_OK(reader.object(counts, at + "/" + device));
      for (const auto& [count, value] : counts.items()) {
        std::string here = at;
        here.append("/").append(device).append("/").append(count);
        WEIR_TRY(const int devices, reader.count(count, here, 1));
        WEIR_TRY((*curves)[std::pair(device, devices)], reader.curve(value, here));
      }
    }
  }
  return network;
}

}  // namespace weir::planner
