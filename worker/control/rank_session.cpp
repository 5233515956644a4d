// SPDX-License-Identifier: Apache-2.0
#include "worker/control/rank_session.h"

#include <algorithm>
#include <utility>

#include "worker/base/log.h"
#include "worker/control/peer_id.h"

namespace weir::control {
bool RankSession::on_message(const protocol::Message& message) {
  if (const auto* prepare_message = std::get_if<protocol::Prepare>(&message)) {
    prepare(*prepare_message);
  } else if (const auto* commit_message = std::get_if<protocol::Commit>(&message)) {
    commit(*commit_message);
  } else if (const auto* go = std::get_if<protocol::Go>(&message)) {
    if (current_ && current_->revision == go->revision) {
      target_.go(go->revision);
    } else {
      log_warn(kComponent, "GO of an unknown plan ignored", {{"revision", go->revision}});
    }
  } else if (const auto* abort = std::get_if<protocol::Abort>(&message)) {
    if (prepared_ && prepared_->plan.revision == abort->revision) {
      ++turn_;
      prepared_.reset();
      target_.abort(abort->revision);
    }
  } else if (const auto* lost = std::get_if<protocol::PeerLost>(&message)) {
    target_.peer_lost(lost->replica, lost->stage, lost->reason);
  } else if (std::holds_alternative<protocol::Leave>(message)) {
    target_.finished();
  } else if (const auto* save = std::get_if<protocol::Save>(&message)) {
    target_.save(*save);
  } else if (const auto* saved = std::get_if<protocol::Saved>(&message)) {
    target_.saved(saved->step, saved->error, saved->leave);
  } else if (const auto* grant = std::get_if<protocol::Grant>(&message)) {
    target_.grant(*grant);
  } else {
    return false;
  }
  return true;
}

void RankSession::prepare(const protocol::Prepare& message) {
  ++turn_;
  // A second PREPARE without ABORT: the coordinator has abandoned the first one.
  if (prepared_ && !prepared_->committed) target_.abort(prepared_->plan.revision);
  prepared_ = Prepared{.plan = message.plan, .incarnation = message.incarnation};
  const auto revision = message.plan.revision;
  const int incarnation = message.incarnation;
  target_.prepare(
      message.plan, incarnation, answer([this, revision, incarnation](const std::string& reason) {
        if (reason.empty()) {
          send_(protocol::Ready{.revision = revision, .incarnation = incarnation});
        } else {
          send_(
              protocol::Reject{.revision = revision, .reason = reason, .incarnation = incarnation});
        }
      }));
}

void RankSession::commit(const protocol::Commit& message) {
  const auto revision = message.revision;
  if (!prepared_ || prepared_->plan.revision != revision || prepared_->committed) {
    send_(protocol::ReadyState{
        .revision = revision,
        .error = "revision " + std::to_string(revision) + " was not prepared"});
    return;
  }
  prepared_->committed = true;
  const bool new_generation =
      starts_generation(current_ ? &*current_ : nullptr, prepared_->plan, prepared_->incarnation);
  if (prepared_->plan.state == schedule::StateMove::kCheckpoint) {
    current_.reset();  // the state of this rank is dropped for a checkpoint
    step_ = 0;
  }
  target_.commit(revision, message.at_step,
                 answer([this, message, new_generation](const std::string& reason) {
                   committed(message, new_generation, reason);
                 }));
}

void RankSession::committed(const protocol::Commit& message, bool new_generation,
                            const std::string& reason) {
  const auto revision = message.revision;
  if (reason.empty()) {
    if (prepared_->plan.state == schedule::StateMove::kCheckpoint) {
      step_ = std::max<std::int64_t>(0, prepared_->plan.checkpoint_step);
    } else if (new_generation) {
      step_ = message.at_step;
    }
    current_ = std::move(prepared_->plan);
    incarnation_ = prepared_->incarnation;
    prepared_.reset();
  } else if (prepared_->plan.state == schedule::StateMove::kMove) {
    current_.reset();  // the state is a mix of layers of the old and the new cut
    step_ = 0;
  }
  if (new_generation || !reason.empty()) {
    send_(protocol::ReadyState{.revision = revision, .error = reason, .step = step_});
  } else {
    send_(protocol::Applied{.revision = revision, .step = step_});
  }
}

Answer RankSession::answer(std::function<void(const std::string& reason)> then) {
  return [weak = weak_from_this(), post = post_, turn = turn_,
          then = std::move(then)](const std::string& reason) {
    post([weak, turn, then, reason] {
      const auto self = weak.lock();
      if (self && self->turn_ == turn) then(reason);
    });
  };
}

void RankSession::on_disconnect() {
  ++turn_;
  if (prepared_ && !prepared_->committed) target_.abort(prepared_->plan.revision);
  prepared_.reset();
}

void RankSession::on_status(const protocol::StageStatus& status) {
  step_ = status.step;
  // Within a generation, a stage other than 0 gets no COMMIT: it reads the epoch and reports it in
  // its STATUS.
  if (prepared_ && !prepared_->committed && prepared_->plan.revision == status.epoch && current_ &&
      !starts_generation(&*current_, prepared_->plan, prepared_->incarnation)) {
    current_ = std::move(prepared_->plan);
    incarnation_ = prepared_->incarnation;
    prepared_.reset();
  }
}

protocol::Hello RankSession::hello(const protocol::Member& member, const Settings& settings) const {
  return {.member = member,
          .incarnation = incarnation_,
          .revision = current_ ? current_->revision : 0,
          .step = step_,
          .settings = settings};
}

}  // namespace weir::control
