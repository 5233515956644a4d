// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/record.h"

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace weir::wire {
namespace asio = boost::asio;

void RecordStream::read(Keep keep, std::function<void(Result<Record>)> done) {
  asio::async_read(
      socket_, asio::buffer(prefix_),
      [this, keep, done = std::move(done)](boost::system::error_code error, std::size_t) {
        if (error) return done(Error{Code::kUnavailable, error.message()});
        const auto prefix = decode_record_prefix({prefix_.data(), prefix_.size()});
        if (!prefix) return done(prefix.error());
        record_ = {prefix->type, std::string(prefix->body_bytes, '\0')};
        asio::async_read(socket_, asio::buffer(record_.body),
                         [this, keep, done](boost::system::error_code failure, std::size_t) {
                           if (failure) return done(Error{Code::kUnavailable, failure.message()});
                           done(std::move(record_));
                         });
      });
}

void RecordStream::write(Keep keep, const Record& record, std::function<void(Status)> done) {
  out_ = encode_record(record);
  asio::async_write(socket_, asio::buffer(out_),
                    [keep = std::move(keep), done = std::move(done)](
                        boost::system::error_code error, std::size_t) {
                      if (error) return done(Error{Code::kUnavailable, error.message()});
                      done(Unit{});
                    });
}

void RecordStream::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace weir::wire
