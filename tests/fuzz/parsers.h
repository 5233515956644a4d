// SPDX-License-Identifier: Apache-2.0
// Entry points for fuzzing the readers of what comes from outside: files of users and of checkpoint
// folders, answers of the API server and of Prometheus, messages of ports 7070, 7071 and 8443,
// addresses, times, quantities, traces: any bytes are a struct or an error of one line. The
// ordinary test run feeds them damaged copies of the corpus; built with clang, libFuzzer does.
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
  kWatchLine,
  kList,
  kPlan,
  kMessage,
  kReport,
  kRegister,
  kManifest,
  kFolderLock,
  kMatrix,
  kUrl,
  kHostPort,
  kTime,
  kControlHello,
  kDataHello,
  kDataFrame,
  kTensorFile,
  kQuantity,
  kRate,
  kMegatronIndex,
  kLlmCFile,
  kFlatFile,
  kDataShares,
  kModelFile,
  kModelConfig,
  kRecord
};
constexpr std::array kParsers{
    Parser::kGraph,         Parser::kProfile,     Parser::kCluster,      Parser::kShortCluster,
    Parser::kSailorTimes,   Parser::kSailorSizes, Parser::kWatchLine,    Parser::kList,
    Parser::kPlan,          Parser::kMessage,     Parser::kReport,       Parser::kRegister,
    Parser::kManifest,      Parser::kFolderLock,  Parser::kMatrix,       Parser::kUrl,
    Parser::kHostPort,      Parser::kTime,        Parser::kControlHello, Parser::kDataHello,
    Parser::kDataFrame,     Parser::kTensorFile,  Parser::kQuantity,     Parser::kRate,
    Parser::kMegatronIndex, Parser::kLlmCFile,    Parser::kFlatFile,     Parser::kDataShares,
    Parser::kModelFile,     Parser::kModelConfig, Parser::kRecord};

// Aborts when the parser breaks its promise; true: the text was accepted.
bool feed(Parser parser, std::string_view text);

}  // namespace weir::fuzz
