// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "worker/engine/mailbox.h"

namespace weir::engine::test {

// What a letter says: "commit 1 at 0".
inline std::string text_of(const Letter& letter) {
  const protocol::Message& message = letter.message;
  if (const auto* prepare = std::get_if<protocol::Prepare>(&message)) {
    return "prepare " + std::to_string(prepare->plan.revision) + " incarnation " +
           std::to_string(prepare->incarnation);
  }
  if (const auto* commit = std::get_if<protocol::Commit>(&message)) {
    return "commit " + std::to_string(commit->revision) + " at " + std::to_string(commit->at_step);
  }
  if (const auto* go = std::get_if<protocol::Go>(&message)) {
    return "go " + std::to_string(go->revision);
  }
  if (const auto* abort = std::get_if<protocol::Abort>(&message)) {
    return "abort " + std::to_string(abort->revision);
  }
  if (const auto* lost = std::get_if<protocol::PeerLost>(&message)) {
    return "lost stage " + std::to_string(lost->stage);
  }
  if (const auto* save = std::get_if<protocol::Save>(&message)) {
    return "save " + std::to_string(save->step);
  }
  if (const auto* saved = std::get_if<protocol::Saved>(&message)) {
    return "saved " + std::to_string(saved->step) + (saved->leave ? " leave" : "");
  }
  if (const auto* grant = std::get_if<protocol::Grant>(&message)) {
    return "grant " + std::to_string(grant->round);
  }
  if (const auto* measure = std::get_if<protocol::Measure>(&message)) {
    return "measure " + std::to_string(measure->rounds);
  }
  return "leave";
}

// True if the engine answers the letter.
inline bool asks(const Letter& letter) {
  return std::holds_alternative<protocol::Prepare>(letter.message) ||
         std::holds_alternative<protocol::Commit>(letter.message);
}

}  // namespace weir::engine::test
