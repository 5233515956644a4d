// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/parsers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "operator/api/decode.h"
#include "operator/api/resources.h"
#include "operator/metrics/matrix.h"
#include "operator/planner/model/cluster_json.h"
#include "operator/planner/model/graph_text.h"
#include "operator/planner/model/profile_json.h"
#include "operator/planner/model/sailor_profile.h"
#include "worker/base/check.h"
#include "worker/base/host_port.h"
#include "worker/base/time_text.h"
#include "worker/base/units.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/control/peer_id.h"
#include "worker/data/mixture.h"
#include "worker/data/token_layout.h"
#include "worker/emulate/options.h"
#include "worker/http/text.h"
#include "worker/huggingface/config.h"
#include "worker/protocol/codec.h"
#include "worker/schedule/validate.h"
#include "worker/timeline/chrome_trace.h"
#include "worker/timeline/codec.h"
#include "worker/transport/tcp/frame.h"
#include "worker/transport/tcp/packed_sums.h"
#include "worker/transport/tcp/place.h"
#include "worker/transport/tcp/replica_group_peer.h"
#include "worker/transport/tcp/state_wire.h"
#include "worker/wire/handshake.h"

namespace weir::fuzz {
namespace {

namespace tcp = transport::tcp;

template <class T>
bool accepted(const Result<T>& result) {
  if (result.ok()) return true;
  WEIR_CHECK(!result.error().message.empty(), "an error says why");
  WEIR_CHECK(result.error().message.find('\n') == std::string::npos, "an error is one line");
  return false;
}

// What every reader promises of a model: edges join layers, times are there.
bool accepted(const Result<planner::Model>& model) {
  if (!accepted<planner::Model>(model)) return false;
  const auto layers = static_cast<int>(model->layers.size());
  WEIR_CHECK(layers > 0, "a model has layers");
  for (const auto& [from, to] : model->edges) {
    WEIR_CHECK(from >= 0 && to >= 0 && from < layers && to < layers, "an edge joins layers");
  }
  for (const planner::Layer& layer : model->layers) {
    WEIR_CHECK(!layer.times.empty(), "a layer has times");
    WEIR_CHECK(layer.parameter_bytes >= 0 && layer.output_bytes_per_sample >= 0, "sizes");
  }
  return true;
}

// An object that the API server sent is read as each kind: what is no pod is an error, no crash.
bool accepted_object(std::string_view object) {
  accepted(api::decode_job(object));
  accepted(api::decode_config_map(object));
  accepted(api::decode_node(object));
  return accepted(api::decode_pod(object));
}

bool accepted_line(std::string_view line) {
  const auto event = api::decode_watch_event(line);
  return accepted(event) && accepted_object(event->object);
}

bool accepted_list(std::string_view text) {
  const auto page = api::decode_list(text);
  if (!accepted(page)) return false;
  accepted(api::newest_warning(text));
  return std::ranges::all_of(page->items, accepted_object);
}

// A plan that can be read can be judged.
bool accepted_plan(std::string_view text) {
  const auto plan = protocol::decode_plan(text);
  if (!accepted(plan)) return false;
  for (const std::string& line : schedule::broken_rules(*plan, -1)) {
    WEIR_CHECK(line.find('\n') == std::string::npos, "a broken rule is one line");
  }
  return true;
}

// Records of strangers on port 7070.
bool accepted_control_hello(std::string_view text) {
  const auto hello = wire::decode_hello(text);
  return accepted(hello) && accepted(control::decode_peer(hello->body));
}

// The same on port 7071.
bool accepted_data_hello(std::string_view text) {
  accepted(wire::decode_record_prefix(text.substr(0, wire::kRecordPrefixBytes)));
  accepted(wire::decode_challenge(text));
  wire::decode_refusal(text);
  const auto hello = wire::decode_hello(text);
  return accepted(hello) && accepted(tcp::decode_place(hello->body));
}

bool accepted_frame(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  accepted(tcp::decode_acknowledgement(bytes));
  accepted(tcp::decode_replica_group_frame(bytes));
  accepted(tcp::decode_state_wish(bytes));
  accepted(tcp::decode_chunk_header(bytes));
  std::vector<double> sums(300);
  accepted(tcp::unpack_sums(bytes, sums));
  return accepted(tcp::decode_frame(bytes));
}

bool accepted_tensors(std::string_view text) {
  const auto tensors = checkpoint::decode_tensors(text);
  if (!accepted(tensors)) return false;
  for (const auto& tensor : *tensors) {
    std::int64_t values = 1;
    for (const std::int64_t size : tensor.shape) values *= size;
    WEIR_CHECK(values * 4 == static_cast<std::int64_t>(tensor.bytes.size()),
               "a shape is its bytes");
  }
  return true;
}

// Layers are described without memory for their parameters, so any size may come.
bool accepted_config(std::string_view text) {
  const auto config = huggingface::read_config(text);
  if (!accepted(config)) return false;
  stage::ModelOptions options;
  options.sequence = 1;
  options.vocabulary = config->vocabulary;
  if (!stage::check_decoder(config->shape, options) || config->shape.blocks > 4) return true;
  for (const auto& layer : stage::build_decoder(config->shape, options)) {
    WEIR_CHECK(layer->info().parameter_bytes > 0, "each layer has parameters");
  }
  return true;
}

bool accepted_matrix(std::string_view text) {
  const auto matrix = metrics::decode_matrix(text);
  if (!accepted(matrix)) return false;
  for (const metrics::Series& series : matrix->series) {
    for (const auto& [time, value] : series.points) {
      WEIR_CHECK(std::isfinite(value), "a point has a value");
      WEIR_CHECK(std::abs(to_seconds(time.time_since_epoch())) < 9.1e9, "a time does not wrap");
    }
  }
  return true;
}

// Text as a file.
class Text final : public data::Bytes {
 public:
  explicit Text(std::string_view text) : text_(text) {}
  std::uint64_t size() const override { return text_.size(); }
  Status read(std::uint64_t at, std::span<std::byte> to) const override {
    WEIR_CHECK(at <= text_.size() && to.size() <= text_.size() - at, "nothing beyond the end");
    std::ranges::copy(std::as_bytes(std::span(text_)).subspan(at, to.size()), to.begin());
    return Unit{};
  }

 private:
  std::string_view text_;
};

constexpr int kVocabulary = 1000;
constexpr std::uint64_t kBinOfCorpus = 40;  // bytes of the .bin that the index in the corpus has

bool accepted_index(std::string_view text) {
  const auto layout = data::megatron_layout(Text(text), kBinOfCorpus);
  if (!accepted(layout)) return false;
  WEIR_CHECK(layout->tokens * bytes_of(layout->type) == kBinOfCorpus, "tokens are the .bin");
  return true;
}

bool accepted_tokens(std::string_view text, const data::TokenLayout& layout) {
  std::vector<std::int32_t> tokens(layout.tokens);
  if (!accepted(data::read_tokens(Text(text), layout, 0, kVocabulary, tokens))) return false;
  for (const std::int32_t token : tokens) {
    WEIR_CHECK(token >= 0 && token < kVocabulary, "a token of the vocabulary");
  }
  return true;
}

bool accepted_llm_c(std::string_view text) {
  const auto layout = data::llm_c_layout(Text(text));
  return accepted(layout) && *layout && accepted_tokens(text, **layout);
}

bool accepted_flat(std::string_view text) {
  bool all = true;
  for (const auto type : {data::TokenType::kU8, data::TokenType::kU16, data::TokenType::kU32}) {
    const auto layout = data::flat_layout(text.size(), type);
    all = accepted(layout) && accepted_tokens(text, *layout) && all;
  }
  return all;
}

bool accepted_shares(std::string_view text) {
  const auto shares = data::parse_shares(text);
  if (!accepted(shares)) return false;
  std::vector<int> places;
  for (const data::Share& share : *shares) {
    WEIR_CHECK(share.places > 0 && !share.path.empty(), "a share of a file");
    places.push_back(share.places);
  }
  const data::Mixture mixture(places);
  WEIR_CHECK(mixture.at(~0ULL).file < places.size(), "a file of the list");
  return true;
}

// The records of a trace can be drawn if they belong together.
bool accepted_records(std::string_view text) {
  const auto records = timeline::decode(text);
  if (!accepted(records)) return false;
  if (!timeline::belong_together(*records)) return true;
  WEIR_CHECK(timeline::chrome_trace(*records).ends_with("\n"), "a trace is text");
  return true;
}

}  // namespace

bool feed(Parser parser, std::string_view text) {
  switch (parser) {
    case Parser::kGraph:
      return accepted(planner::decode_graph(text, "fuzz"));
    case Parser::kProfile:
      return accepted(planner::decode_profile(text));
    case Parser::kCluster:
      return accepted(planner::decode_cluster(text, "fuzz"));
    case Parser::kShortCluster:
      return accepted(planner::decode_short_cluster(text));
    case Parser::kSailorTimes:
      return accepted(planner::decode_sailor_times(text, "fuzz"));
    case Parser::kSailorSizes:
      return accepted(planner::decode_sailor_sizes(text, "OPT-350", "fuzz"));
    case Parser::kWatchLine:
      return accepted_line(text);
    case Parser::kList:
      return accepted_list(text);
    case Parser::kPlan:
      return accepted_plan(text);
    case Parser::kMessage:
      return accepted(protocol::decode_message(text));
    case Parser::kReport:
      return accepted(protocol::decode_report(text));
    case Parser::kRegister:
      return accepted(protocol::decode_register(text));
    case Parser::kManifest:
      return accepted(checkpoint::decode_manifest(text));
    case Parser::kFolderLock:
      return accepted(checkpoint::decode_lock(text));
    case Parser::kMatrix:
      return accepted_matrix(text);
    case Parser::kUrl:
      return accepted(http::parse_base_url(std::string(text)));
    case Parser::kHostPort:
      return accepted(parse_host_port(text));
    case Parser::kTime:
      return parse_rfc3339(text).has_value();
    case Parser::kControlHello:
      return accepted_control_hello(text);
    case Parser::kDataHello:
      return accepted_data_hello(text);
    case Parser::kDataFrame:
      return accepted_frame(text);
    case Parser::kTensorFile:
      return accepted_tensors(text);
    case Parser::kQuantity:
      return api::read_quantity(std::string(text)).has_value();
    case Parser::kRate:
      return accepted(emulate::parse_rate(std::string(text)));
    case Parser::kMegatronIndex:
      return accepted_index(text);
    case Parser::kLlmCFile:
      return accepted_llm_c(text);
    case Parser::kFlatFile:
      return accepted_flat(text);
    case Parser::kDataShares:
      return accepted_shares(text);
    case Parser::kModelFile:
      return accepted(checkpoint::decode_tensors(text, checkpoint::Types::kAny));
    case Parser::kModelConfig:
      return accepted_config(text);
    case Parser::kRecord:
      return accepted_records(text);
  }
  return false;
}

}  // namespace weir::fuzz

// libFuzzer: the first byte chooses the parser.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  weir::fuzz::feed(weir::fuzz::kParsers[data[0] % weir::fuzz::kParsers.size()], text);
  return 0;
}
