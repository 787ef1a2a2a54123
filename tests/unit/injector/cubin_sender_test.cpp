#include "injector/cubin_sender.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <memory>
#include <string>

#include "injector/module_images.h"
#include "tests/unit/injector/daemon_end.h"

namespace gpuperf::injector {
namespace {

uint64_t hash(const void* bytes, size_t count) {
  uint64_t crc = count;
  for (size_t i = 0; i < count; ++i) crc = crc * 31 + static_cast<const uint8_t*>(bytes)[i];
  return crc;
}
CUptiResult get_crc(CUpti_GetCubinCrcParams* params) {
  params->cubinCrc = hash(params->cubin, params->cubinSize);
  return CUPTI_SUCCESS;
}

// An image of this many bytes.
std::string make_image(size_t bytes, char fill) {
  std::string image(bytes, fill);
  Elf64_Ehdr head = {};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_machine = 190;
  head.e_shoff = sizeof head;
  head.e_shnum = 0;
  head.e_phentsize = 56;
  head.e_phnum = 2;
  head.e_phoff = bytes - 2 * 56;
  std::memcpy(image.data(), &head, sizeof head);
  return image;
}
std::string make_entry(uint16_t kind, const std::string& payload) {
  std::string entry(64, '\0');
  const uint16_t version = 0x101;
  const uint32_t header_bytes = 64;
  const uint64_t payload_bytes = payload.size();
  std::memcpy(&entry[0], &kind, 2);
  std::memcpy(&entry[2], &version, 2);
  std::memcpy(&entry[4], &header_bytes, 4);
  std::memcpy(&entry[8], &payload_bytes, 8);
  return entry + payload;
}
std::string make_fat_binary(const std::string& entries) {
  std::string fat(16, '\0');
  const uint32_t magic = 0xba55ed50;
  const uint16_t version = 1, header_bytes = 16;
  const uint64_t entries_bytes = entries.size();
  std::memcpy(&fat[0], &magic, 4);
  std::memcpy(&fat[4], &version, 2);
  std::memcpy(&fat[6], &header_bytes, 2);
  std::memcpy(&fat[8], &entries_bytes, 8);
  return fat + entries;
}

class CubinSenderTest : public testing::Test {
 protected:
  void SetUp() override {
    api_.cuptiGetCubinCrc = get_crc;
    ASSERT_TRUE(daemon_.come_together(*link_, kNowMs));
    // Images of other tests are gone, or look like what they were.
    for (size_t i = 0; i < kModuleImages; ++i) note_module_image(0);
  }
  static void note(const void* image) { note_module_image(reinterpret_cast<Word>(image)); }
  static uint64_t hash_of(const std::string& image) { return hash(image.data(), image.size()); }
  void want(const std::string& image) { EXPECT_TRUE(sender_->want(hash_of(image))); }

  // What the daemon was sent: by CRC the image, or "state N".
  std::map<uint64_t, std::string> send() {
    std::map<uint64_t, std::string> images;
    for (int i = 0; i < 1'000 && sender_->has_work(); ++i) {
      sender_->tend(kNowMs);
      batch_->send(kNowMs);
      link_->send_queued(kNowMs);
      for (auto message = daemon_.take(); !message.empty(); message = daemon_.take()) {
        link_->send_queued(kNowMs);
        for (size_t at = sizeof(gpuperf_batch); at < message.size();) {
          const auto record = read_as<gpuperf_session_cubin>(message, at);
          EXPECT_EQ(record.record.kind, GPUPERF_SESSION_CUBIN);
          std::string& image = images[record.cubin_crc];
          if (record.record.id != GPUPERF_CUBIN_FOUND) {
            EXPECT_EQ(record.size_bytes + record.piece_bytes, 0u);
            image = "state " + std::to_string(record.record.id);
          } else {
            EXPECT_EQ(record.offset_bytes, image.size());
            image.append(reinterpret_cast<const char*>(&message[at + sizeof record]),
                         record.piece_bytes);
            EXPECT_LE(image.size(), record.size_bytes);
          }
          at += record.record.length_bytes;
        }
      }
    }
    EXPECT_FALSE(sender_->has_work());
    return images;
  }

  DaemonEnd daemon_;
  CuptiApi api_;
  std::unique_ptr<DaemonLink> link_ = std::make_unique<DaemonLink>();
  std::unique_ptr<Batch> batch_ = std::make_unique<Batch>(*link_);
  std::unique_ptr<CubinSender> sender_ = std::make_unique<CubinSender>(api_, *batch_);
};

TEST_F(CubinSenderTest, SendsImagesThatSamplesNameOnce) {
  const std::string small = make_image(777, 'a'), large = make_image(3 << 20, 'b'),
                    unwanted = make_image(500, 'c');
  for (const std::string* image : {&small, &unwanted, &large, &small}) note(image->data());
  want(small);
  want(large);
  want(small);

  const auto images = send();

  EXPECT_EQ(images,
            (std::map<uint64_t, std::string>{{hash_of(small), small}, {hash_of(large), large}}));
  want(small);
  EXPECT_FALSE(sender_->has_work());
}

TEST_F(CubinSenderTest, SendsEverythingAgainInANewConnection) {
  const std::string image = make_image(777, 'a');
  note(image.data());
  want(image);
  EXPECT_EQ(send().size(), 1u);

  sender_->start_connection();
  want(image);

  EXPECT_EQ(send().at(hash_of(image)), image);
}

TEST_F(CubinSenderTest, FindsImagesWithinFatBinaries) {
  const std::string first = make_image(600, 'a'), second = make_image(700, 'b');
  const std::string fat =
      make_fat_binary(make_entry(1, ".version") + make_entry(2, first) +
                      make_entry(2, "(\xb5/\xfd packed") + make_entry(2, second));
  const struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void* fat_binary;
    void* unused = nullptr;
  } wrapper{.fat_binary = fat.data()};
  note(&wrapper);
  want(second);
  want(first);
  EXPECT_TRUE(sender_->want(1));

  EXPECT_EQ(send(), (std::map<uint64_t, std::string>{
                        {1, "state 2"}, {hash_of(first), first}, {hash_of(second), second}}));
}

TEST_F(CubinSenderTest, SaysWhatIsNotThere) {
  std::string changed = make_image(600, 'a');
  const std::string was = changed;
  auto* gone = static_cast<char*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const std::string text = ".version 8.0 // PTX";
  note(changed.data());
  note(gone);
  note(text.data());
  want(was);
  changed.assign(changed.size(), 'x');
  munmap(gone, 4096);

  EXPECT_EQ(send(), (std::map<uint64_t, std::string>{{hash_of(was), "state 1"}}));
}

TEST_F(CubinSenderTest, SendsNothingBeyondItsBounds) {
  const std::string largest = make_image(GPUPERF_CUBIN_BYTES_MAX, 'a'),
                    larger = make_image(GPUPERF_CUBIN_BYTES_MAX + 8, 'b');
  note(largest.data());
  note(larger.data());
  want(largest);
  want(larger);
  const auto images = send();
  EXPECT_TRUE(images.at(hash_of(largest)) == largest);
  EXPECT_EQ(images.at(hash_of(larger)), "state 3");

  for (uint64_t crc = 2; crc < CubinSender::kWantedMax; ++crc) EXPECT_TRUE(sender_->want(crc));
  EXPECT_FALSE(sender_->want(9'999));
  EXPECT_EQ(send().size(), CubinSender::kWantedMax - 2);
}

TEST_F(CubinSenderTest, ForgetsTheImagesThatWereLoadedFirst) {
  const std::string first = make_image(600, 'a'), second = make_image(700, 'b');
  note(first.data());
  note(second.data());
  for (size_t i = 1; i < kModuleImages; ++i) note_module_image(0);
  want(first);
  want(second);

  EXPECT_EQ(send(), (std::map<uint64_t, std::string>{{hash_of(first), "state 1"},
                                                     {hash_of(second), second}}));
}

TEST_F(CubinSenderTest, WaitsWhileTheConnectionIsFull) {
  const std::string image = make_image(GPUPERF_CUBIN_BYTES_MAX, 'a');
  note(image.data());
  want(image);
  for (int i = 0; i < 10; ++i) sender_->tend(kNowMs);

  EXPECT_TRUE(sender_->has_work()) << "it is larger than the queue";
  EXPECT_FALSE(batch_->has_lost_entries());
  EXPECT_TRUE(send().at(hash_of(image)) == image);
}

}  // namespace
}  // namespace gpuperf::injector
