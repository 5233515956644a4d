// SPDX-License-Identifier: Apache-2.0
#include "worker/app/export_command.h"

#include <cstdint>
#include <string_view>

#include <CLI/CLI.hpp>

#include "worker/base/utf8.h"
#include "worker/command_line/numbers.h"
#include "worker/huggingface/export.h"

namespace weir::app {
namespace {

constexpr const char* kName = "export";
constexpr std::size_t kLongestUsageError = 400;
constexpr std::int64_t kMostShardMegabytes = 1'000'000;
constexpr std::int64_t kMegabyte = 1'000'000;

}  // namespace

bool is_export(int argc, const char* const* argv) {
  return argc > 1 && std::string_view(argv[1]) == kName;
}

Result<std::string> run_export(int argc, const char* const* argv) {
  huggingface::ExportOrder order;
  std::string type = "fp32";
  std::int64_t shard = order.most_shard_bytes / kMegabyte;
  CLI::App app("Writes a checkpoint as a folder of Hugging Face.", "weir-worker export");
  app.add_option("--checkpoint", order.checkpoint,
                 "folder of checkpoints, for its newest one, or DIR/step-N")
      ->required();
  app.add_option("--to", order.to, "folder that is written, made if it is missing")->required();
  app.add_option("--dtype", type, "type of the numbers: fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--shard-megabytes", shard, "largest size of a file of tensors")
      ->transform(whole_in(1, kMostShardMegabytes))
      ->capture_default_str();
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    return invalid(one_line(error.what(), kLongestUsageError));
  }
  order.dtype = type == "bf16" ? "BF16" : "F32";
  order.most_shard_bytes = shard * kMegabyte;
  const auto exported = huggingface::export_checkpoint(order);
  if (!exported) return invalid(exported.error().message);
  return order.to + ": step " + std::to_string(exported->step) + ", " +
         std::to_string(exported->bytes) + " bytes of tensors in " +
         std::to_string(exported->files) + " files\n";
}

}  // namespace weir::app
