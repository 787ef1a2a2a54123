// Any bytes as what a client of the API sends before gRPC sees it, and promises of
// daemon/rpc/frame_guard.h. The first byte says in how large pieces it comes; what follows a byte
// 0xff 0xff pair is what gRPC answers.

#include <algorithm>

#include "daemon/rpc/frame_guard.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string make_frame(uint8_t type, uint8_t flags, uint8_t stream, const std::string& payload) {
  const auto length = static_cast<uint8_t>(payload.size());
  std::string frame{'\0',
                    '\0',
                    static_cast<char>(length),
                    static_cast<char>(type),
                    static_cast<char>(flags),
                    '\0',
                    '\0',
                    '\0',
                    static_cast<char>(stream)};
  return frame + payload;
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  if (bytes.empty()) return "";
  const size_t piece_bytes = static_cast<uint8_t>(bytes.front()) + size_t{1};
  bytes.remove_prefix(1);
  const size_t end = std::min(bytes.find("\xff\xff"), bytes.size());
  std::string_view answers = bytes.substr(std::min(bytes.size(), end + 2));
  bytes = bytes.substr(0, end);
  const auto budget = std::make_shared<PeerBudget>();
  int64_t now_mono_ns = 1'000'000'000;
  {
    FrameGuard guard(budget);
    size_t idle = 0;
    while (!bytes.empty() && guard.breach().empty() && idle < 3) {
      const std::string_view piece = bytes.substr(0, piece_bytes);
      const size_t admitted = guard.admit(piece, now_mono_ns);
      if (admitted > piece.size()) return "more was admitted than there is";
      idle = admitted == 0 ? idle + 1 : 0;
      bytes.remove_prefix(admitted);
      now_mono_ns = std::max(now_mono_ns + 1, guard.ready_mono_ns());
      const std::string_view answer = answers.substr(0, piece_bytes);
      guard.note_answer(answer);
      answers.remove_prefix(answer.size());
      if (budget->open_calls > PeerBudget::kMaxOpenCalls) return "more open calls than may be";
      if (budget->request_bytes > PeerBudget::kMaxRequestBytes) return "requests beyond the bound";
    }
  }
  return budget->open_calls != 0 || budget->request_bytes != 0 ? "a budget not given back" : "";
}

std::vector<std::string> make_seeds() {
  const std::string preface(kPreface);
  const std::string settings = make_frame(Http2Frame::kSettings, 0, 0, std::string(6, '\0'));
  const std::string call =
      make_frame(Http2Frame::kHeaders, Http2Frame::kEndHeaders, 1, "\x82\x86") +
      make_frame(Http2Frame::kData, Http2Frame::kEndStream, 1, "hello");
  const std::string whole = preface + settings + call;
  return {"\xff" + whole,
          "\x05" + whole + make_frame(Http2Frame::kReset, 0, 1, std::string(4, '\0')),
          "\x20" + whole + make_frame(Http2Frame::kPing, 0, 0, std::string(8, 'p')) + "\xff\xff" +
              make_frame(Http2Frame::kHeaders, Http2Frame::kEndStream, 1, "\x88")};
}

}  // namespace gpuperf::fuzz
