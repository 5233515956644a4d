// SPDX-License-Identifier: Apache-2.0
// A checkpoint as a Hugging Face folder: its values are copied into safetensors files, config.json
// comes from the section `export` of its manifest, tokenizer files from the folder that is named
// there. Neither the model nor Python takes part, so it serves layers of one's own, too, if their
// parameters have the names that transformers expects.
#pragma once

#include <cstdint>
#include <string>

#include "worker/base/result.h"

namespace weir::huggingface {

struct ExportOrder {
  std::string checkpoint;     // a folder of checkpoints, for its newest one, or DIR/step-N
  std::string to;             // made if it is missing
  std::string dtype = "F32";  // or "BF16"
  std::int64_t most_shard_bytes = 5'000'000'000;
};
struct Exported {
  std::int64_t step = 0, bytes = 0;
  int files = 0;  // of tensors
};

// kInvalid: the checkpoint is damaged, or its model has no export. kNotFound: there is none.
// kUnavailable: a file cannot be read or written. After an error no new config.json has been
// written.
Result<Exported> export_checkpoint(const ExportOrder& order);

}  // namespace weir::huggingface
