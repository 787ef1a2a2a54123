// NCCL: signatures of nccl.h, NCCL 2.28.

#include "daemon/model/data_types.h"
#include "daemon/probe/arguments/argument_rows.h"

namespace gpuperf {
namespace {

// ncclRedOp_t; numbers from 5 on are operations the program made itself.
constexpr CodeName kReductions[] = {{0, "sum"}, {1, "prod"}, {2, "max"}, {3, "min"}, {4, "avg"}};

FieldRow make_count(std::string_view name, uint8_t source) {
  return as_factor(make_u64(name, source));
}

FieldRow make_type(uint8_t source) {
  FieldRow row = make_code("type", source, nccl_type_codes());
  row.use = ValueUse::kElementType;
  return row;
}

FieldRow make_reduction(uint8_t source) { return make_code("op", source, kReductions); }
FieldRow make_communicator(uint8_t source) { return make_pointer("comm", source); }
// Where the call leaves its communicator.
FieldRow make_new_communicator(uint8_t source) {
  FieldRow row = make_pointer("comm_at", source);
  row.use = ValueUse::kResult;
  return row;
}
FieldRow make_id(std::string_view name, uint8_t source) { return make_pointer(name, source); }

}  // namespace

// Bytes are count x size of the type, with the count as this rank gives it: what it contributes
// (ncclAllReduce, ncclReduce, ncclBroadcast, ncclSend, ncclAllGather: sendcount), what it receives
// (ncclRecv, ncclReduceScatter: recvcount), or its share with each single rank (ncclAlltoAll,
// ncclGather, ncclScatter). The rank itself is no argument of these calls: it lies within the
// communicator, and ncclCommInitRank shows it beside the address where the communicator is left.
std::vector<DecoderRow> make_nccl_rows() {
  std::vector<DecoderRow> rows = {
      {{"ncclAllReduce"},
       {make_count("count", 2), make_type(3), make_reduction(4), make_communicator(5),
        make_stream(6), make_pointer("send", 0), make_pointer("receive", 1)}},
      {{"ncclReduce"},
       {make_count("count", 2), make_type(3), make_reduction(4), make_i32("root", 5),
        make_communicator(6), make_stream(7), make_pointer("send", 0), make_pointer("receive", 1)}},
      {{"ncclBroadcast", "ncclGather", "ncclScatter"},
       {make_count("count", 2), make_type(3), make_i32("root", 4), make_communicator(5),
        make_stream(6), make_pointer("send", 0), make_pointer("receive", 1)}},
      {{"ncclBcast"},
       {make_count("count", 1), make_type(2), make_i32("root", 3), make_communicator(4),
        make_stream(5), make_pointer("buffer", 0)}},
      {{"ncclReduceScatter"},
       {make_count("recvcount", 2), make_type(3), make_reduction(4), make_communicator(5),
        make_stream(6), make_pointer("send", 0), make_pointer("receive", 1)}},
      {{"ncclAllGather"},
       {make_count("sendcount", 2), make_type(3), make_communicator(4), make_stream(5),
        make_pointer("send", 0), make_pointer("receive", 1)}},
      {{"ncclAlltoAll"},
       {make_count("count", 2), make_type(3), make_communicator(4), make_stream(5),
        make_pointer("send", 0), make_pointer("receive", 1)}},
      {{"ncclSend", "ncclRecv"},
       {make_count("count", 1), make_type(2), make_i32("peer", 3), make_communicator(4),
        make_stream(5), make_pointer("buffer", 0)}},
      // The unique id between the second and the last argument is 128 bytes by value: on the stack.
      // Its beginning is a random number, then the address of who made it: enough to tell it by.
      {{"ncclCommInitRank", "ncclCommInitRankConfig"},
       {make_i32("rank", 2), make_i32("ranks", 1), make_new_communicator(0),
        make_id("unique_id", 6), make_id("", 7), make_id("", 8)}},
      {{"ncclCommInitRankScalable"},
       {make_i32("rank", 2), make_i32("ranks", 1), make_new_communicator(0),
        in_memory(make_id("unique_id", 4), {0}), in_memory(make_id("", 4), {8}),
        in_memory(make_id("", 4), {16})}},
      {{"ncclCommInitAll"}, {make_i32("devices", 1), make_pointer("comm_at", 0)}},
      {{"ncclCommSplit"},
       {make_communicator(0), make_i32("color", 1), make_i32("key", 2), make_new_communicator(3)}},
      {{"ncclCommFinalize", "ncclCommDestroy", "ncclCommAbort"}, {make_communicator(0)}},
      {{"ncclGroupStart", "ncclGroupEnd"}, {}},
  };
  for (DecoderRow& row : rows) row.report = CallReport::kNccl;
  rows.push_back({{"ncclMemAlloc"}, {make_bytes(1)}});
  rows.push_back({{"ncclMemFree"}, {make_pointer("address", 0)}});
  return rows;
}

}  // namespace gpuperf
