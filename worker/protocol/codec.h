// SPDX-License-Identifier: Apache-2.0
// JSON of all messages and of the plan document, in both directions. Decoding does not throw: an
// error is kInvalid with the field and the reason. Unknown fields are ignored. Nesting is at most
// 32; the caller limits the size.
#pragma once

#include <string>
#include <string_view>

#include "worker/base/result.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::protocol {

std::string encode_plan(const schedule::Plan& plan);  // weir.dev/plan/v1
Result<schedule::Plan> decode_plan(
    std::string_view json);  // refuses an unknown apiVersion and names it

std::string encode(const Join&);
Result<Join> decode_join(std::string_view json);
std::string encode(const JoinAnswer&);
Result<JoinAnswer> decode_join_answer(std::string_view json);
std::string encode(const Register&);
Result<Register> decode_register(std::string_view json);
std::string encode(const Report&);
Result<Report> decode_report(std::string_view json);
std::string encode(const ReportAnswer&);
Result<ReportAnswer> decode_report_answer(std::string_view json);

// A frame of port 7070: {"type": "HELLO", ...}. An unknown type is kInvalid.
std::string encode(const Message&);
Result<Message> decode_message(std::string_view json);
const char* type_name(const Message&);  // "HELLO", "PREPARE", ...

}  // namespace weir::protocol
