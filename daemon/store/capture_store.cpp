#include "daemon/store/capture_store.h"

#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/store/folders.h"
#include "daemon/store/whole_file.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".capture";
constexpr const char* kLastIdFile = "last_id";

std::optional<uint64_t> find_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0) return std::nullopt;
  return number;
}

// The id of "17.capture".
std::optional<uint64_t> find_id(std::string_view file_name) {
  if (!file_name.ends_with(kSuffix)) return std::nullopt;
  return find_number(file_name.substr(0, file_name.size() - kSuffix.size()));
}

Status not_found(uint64_t id) {
  return absl::NotFoundError(
      fmt::format("capture {}: not stored here; those that are: gpuperfctl trace list", id));
}

CaptureRow make_row(const Capture& capture, const CaptureRow& known) {
  CaptureRow row = known;
  row.id = capture.id;
  row.name = capture.name;
  row.trigger = capture.trigger;
  row.state = CaptureState::kStored;
  row.problem.clear();
  row.start_unix_ns = capture.start_unix_ns;
  row.duration_ns = capture.duration_ns;
  row.events =
      capture.calls.size() + capture.launches.size() + capture.work.size() + capture.waits.size();
  row.launches = capture.launches.size();
  row.work = capture.matches.work;
  row.work_matched = capture.matches.work_matched;
  row.ambiguous = capture.matches.launches[static_cast<size_t>(LaunchMatch::kAmbiguous)];
  row.stored_bytes = 0;
  return row;
}

}  // namespace

CaptureStore::CaptureStore(Options options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {}

Result<std::unique_ptr<CaptureStore>> CaptureStore::open(Options options, const Clock& clock) {
  RETURN_IF_ERROR(make_folders(options.folder));
  std::unique_ptr<CaptureStore> store(new CaptureStore(std::move(options), clock));
  {
    const MutexLock lock(store->mutex_);
    RETURN_IF_ERROR(store->read_folder());
  }
  store->expire();
  return store;
}

Status CaptureStore::read_folder() {
  std::error_code error;
  fs::directory_iterator entries(options_.folder, error);
  if (error) return errno_status(error.value(), options_.folder + ": list");
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kUnfinishedSuffix)) {
      (void)unlink(entry.path().c_str());  // tried again at the next start
    } else if (const std::optional<uint64_t> id = find_id(name)) {
      add_file(*id, entry.path().string());
    }
  }
  // Without it the highest file's id counts: that of a deleted one may then be used again.
  const auto kept = read_file_beginning(options_.folder + "/" + kLastIdFile, 32);
  if (kept.ok()) last_id_ = std::max(last_id_, find_number(*kept).value_or(0));
  return absl::OkStatus();
}

void CaptureStore::add_file(uint64_t id, const std::string& path) {
  struct stat status {};
  const bool is_there = stat(path.c_str(), &status) == 0;
  const auto beginning = read_file_beginning(path, kCaptureHeadBytes);
  Result<CaptureHead> head =
      beginning.ok() ? decode_capture_head(*beginning) : Result<CaptureHead>(beginning.status());
  if (head.ok() && head->row.id != id) {
    head = absl::DataLossError(fmt::format("it is capture {} by its content", head->row.id));
  }
  CaptureRow row;
  if (head.ok()) {
    row = std::move(head)->row;
  } else {
    log_warn("capture_unreadable", {{"path", path},
                                    {"cause", std::string(head.status().message())},
                                    {"hint", "it is left alone; gpuperfctl trace delete"}});
    row = {.id = id,
           .state = CaptureState::kFailed,
           .problem = fmt::format("{}: {}; delete it: gpuperfctl trace delete {}", path,
                                  std::string(head.status().message()), id)};
  }
  row.stored_bytes = is_there ? static_cast<uint64_t>(status.st_size) : 0;
  used_bytes_ += row.stored_bytes;
  last_id_ = std::max(last_id_, id);
  rows_.emplace(id, std::move(row));
}

std::string CaptureStore::get_path(uint64_t id) const {
  return fmt::format("{}/{}{}", options_.folder, id, kSuffix);
}

Result<CaptureRow> CaptureStore::write(const Capture& capture, const CaptureTarget& target) {
  CaptureRow known;
  known.target = target;
  return write(capture, known);
}

Result<CaptureRow> CaptureStore::write(const Capture& capture, const CaptureRow& known) {
  if (capture.id == 0) return absl::InternalError("capture without an id: nothing was written");
  CaptureRow row = make_row(capture, known);
  ASSIGN_OR_RETURN(const std::string bytes, encode_capture(capture, row));
  row.stored_bytes = bytes.size();
  const MutexLock writing(write_mutex_);
  {
    const MutexLock lock(mutex_);
    if (rows_.contains(row.id)) {
      return absl::AlreadyExistsError(fmt::format("capture {}: there is one already", row.id));
    }
    RETURN_IF_ERROR(make_room(bytes.size()));
  }
  const auto begin = std::chrono::steady_clock::now();
  const Status written = write_whole_file(get_path(row.id), bytes);
  if (!written.ok()) {
    // Where only the folder could not be synced, the file already has its name.
    (void)unlink(get_path(row.id).c_str());
    return written;
  }
  writes_.add(std::chrono::steady_clock::now() - begin);
  const MutexLock lock(mutex_);
  rows_.emplace(row.id, row);
  used_bytes_ += row.stored_bytes;
  keep_last_id(row.id);
  return row;
}

// The oldest leave, but those that cannot be read.
Status CaptureStore::make_room(uint64_t bytes) {
  uint64_t kept_bytes = 0;
  for (const auto& [id, row] : rows_) {
    if (row.state != CaptureState::kStored) kept_bytes += row.stored_bytes;
  }
  if (bytes + kept_bytes > options_.max_bytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "capture of {} bytes: {}: {} bytes may be stored there, of which unreadable files take {}; "
        "raise trace.store_mib, capture for a shorter time, or delete failed ones: "
        "gpuperfctl trace list",
        bytes, options_.folder, options_.max_bytes, kept_bytes));
  }
  for (auto next = rows_.begin();
       next != rows_.end() && used_bytes_ + bytes > options_.max_bytes;) {
    const uint64_t id = next->first;
    const bool is_stored = next->second.state == CaptureState::kStored;
    ++next;
    if (is_stored && !remove_file(id)) {
      return absl::InternalError(get_path(id) + ": cannot be removed to make room");
    }
  }
  return absl::OkStatus();
}

// False where the file stays.
bool CaptureStore::remove_file(uint64_t id) {
  if (unlink(get_path(id).c_str()) != 0 && errno != ENOENT) {
    log_warn("capture_not_removed",
             {{"path", get_path(id)}, {"cause", std::string(errno_status(errno, "").message())}});
    return false;
  }
  const auto found = rows_.find(id);
  used_bytes_ -= found->second.stored_bytes;
  rows_.erase(found);
  return true;
}

void CaptureStore::keep_last_id(uint64_t id) {
  if (id <= last_id_) return;
  last_id_ = id;
  const Status kept =
      write_whole_file(options_.folder + "/" + kLastIdFile, std::to_string(last_id_));
  if (!kept.ok()) log_warn("capture_id_not_kept", {{"cause", std::string(kept.message())}});
}

Result<std::string> CaptureStore::read_bytes(uint64_t id) const {
  {
    const MutexLock lock(mutex_);
    if (!rows_.contains(id)) return not_found(id);
  }
  Result<std::string> bytes = read_file_beginning(get_path(id), kMaxCaptureFileBytes + 1);
  if (bytes.ok() || !absl::IsNotFound(bytes.status())) return bytes;
  return not_found(id);  // it left meanwhile
}

Result<std::shared_ptr<const Capture>> CaptureStore::read(uint64_t id) const {
  ASSIGN_OR_RETURN(const std::string bytes, read_bytes(id));
  Result<Capture> capture = decode_capture(bytes);
  if (!capture.ok()) {
    return absl::DataLossError(fmt::format("{}: {}; delete it: gpuperfctl trace delete {}",
                                           get_path(id), std::string(capture.status().message()),
                                           id));
  }
  return std::make_shared<const Capture>(*std::move(capture));
}

Result<CaptureHead> CaptureStore::read_head(uint64_t id) const {
  CaptureRow row;
  {
    const MutexLock lock(mutex_);
    const auto found = rows_.find(id);
    if (found == rows_.end()) return not_found(id);
    row = found->second;
  }
  if (row.state != CaptureState::kStored) return absl::DataLossError(row.problem);
  ASSIGN_OR_RETURN(const std::string beginning,
                   read_file_beginning(get_path(id), kCaptureHeadBytes));
  ASSIGN_OR_RETURN(CaptureHead head, decode_capture_head(beginning));
  head.row = std::move(row);
  return head;
}

Status CaptureStore::remove(uint64_t id) {
  const MutexLock lock(mutex_);
  if (!rows_.contains(id)) return not_found(id);
  if (remove_file(id)) return absl::OkStatus();
  return absl::InternalError(get_path(id) + ": cannot be removed; let gpuperfd write there");
}

std::vector<CaptureRow> CaptureStore::list() const {
  const MutexLock lock(mutex_);
  std::vector<CaptureRow> rows;
  rows.reserve(rows_.size());
  for (const auto& [id, row] : rows_) rows.push_back(row);
  return rows;
}

uint64_t CaptureStore::last_id() const {
  const MutexLock lock(mutex_);
  return last_id_;
}

void CaptureStore::fill(SelfReport& report) const {
  report.add(Bound::kCaptureStore, used_bytes(), options_.max_bytes);
  report.steps.push_back({std::string(kCaptureWriteStep), writes_.get()});
}

uint64_t CaptureStore::used_bytes() const {
  const MutexLock lock(mutex_);
  return used_bytes_;
}

void CaptureStore::expire() {
  const auto kept_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(options_.retention);
  const int64_t oldest_ns = clock_.unix_ns() - kept_ns.count();
  const MutexLock lock(mutex_);
  std::vector<uint64_t> old;
  for (const auto& [id, row] : rows_) {
    const uint64_t end_ns = row.start_unix_ns + row.duration_ns;
    if (row.state == CaptureState::kStored && oldest_ns > 0 &&
        end_ns < static_cast<uint64_t>(oldest_ns)) {
      old.push_back(id);
    }
  }
  for (const uint64_t id : old) (void)remove_file(id);  // logged there, tried again next time
}

}  // namespace gpuperf
