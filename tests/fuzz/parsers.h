// SPDX-License-Identifier: Apache-2.0
// Entry points for fuzzing the planner's parsers, those of the API server's answers, and the
// worker's (frames of port 7070, files in a checkpoint folder): any bytes are a struct or an error
// of one line. The ordinary test run feeds them damaged copies of the corpus; built with clang,
// libFuzzer does.
#pragma once

#include <array>
#include <string_view>

namespace weir::fuzz {

enum class Parser : unsigned char {
  kGraph,
  kProfile,
  kCluster,
  kShortCluster,
  kSailorTimes,
  kSailorSizes,
  kSailorNetwork,
  kWatchLine,
  kList,
  kFrame,
  kManifest,
  kFolderLock
};
constexpr std::array kParsers{Parser::kGraph,         Parser::kProfile,     Parser::kCluster,
                              Parser::kShortCluster,  Parser::kSailorTimes, Parser::kSailorSizes,
                              Parser::kSailorNetwork, Parser::kWatchLine,   Parser::kList,
                              Parser::kFrame,         Parser::kManifest,    Parser::kFolderLock};

// Aborts when the parser breaks its promise; true: the text was accepted.
bool feed(Parser parser, std::string_view text);

}  // namespace weir::fuzz
