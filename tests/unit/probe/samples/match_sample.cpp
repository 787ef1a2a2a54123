// A small C++ library with every shape of name the matcher tells apart. Its code is not called.

#include <string>

namespace shapes {

// With a virtual destructor: a class then has a deleting one as well.
struct Root {
  virtual ~Root();
  int root = 1;
};
struct Plain : Root {
  Plain();
  ~Plain() override;
  int area(int scale) const;
  int area(double scale) const;
  int area() &&;
  std::string name() const;  // its symbol carries the tag of the new std::string
  bool operator()(int scale);
  bool operator<(const Plain& other) const;
  operator bool() const;
  int value = 0;
};
struct Side {
  virtual ~Side();
  virtual int side();
};
struct Joined : Root, Side {
  int side() override;  // reached through Side by a thunk
};

Root::~Root() { root = 0; }
Plain::Plain() { value = 3; }
Plain::~Plain() { value = 0; }
int Plain::area(int scale) const { return value * scale; }
int Plain::area(double scale) const { return static_cast<int>(value * scale) + 1; }
int Plain::area() && { return value + 2; }
std::string Plain::name() const { return "plain"; }
bool Plain::operator()(int scale) { return scale == value; }
bool Plain::operator<(const Plain& other) const { return value < other.value; }
Plain::operator bool() const { return value > 1; }
Side::~Side() {}
int Side::side() { return 1; }
int Joined::side() { return root + 1; }

template <typename T>
T twice(T value) {
  return value + value;
}
template int twice<int>(int);
template float twice<float>(float);

template <typename T>
struct Box {
  T take(T value);
};
template <typename T>
T Box<T>::take(T value) {
  return value + 1;
}
template struct Box<int>;

// Not shapes::Plain::area, though its name holds the same pieces.
int area_of(const Plain& plain) { return plain.area(2) + 5; }

}  // namespace shapes

namespace {
__attribute__((noinline, used)) int hidden_inside(int value) { return value * 7; }
}  // namespace

extern "C" {

int match_first(int value) { return hidden_inside(value) + 1; }
int match_second(int value) { return value + 2; }
int match_data = 4;
__attribute__((used)) static int match_local(int value) { return value + 3; }
__attribute__((alias("match_second"))) int match_alias(int value);
__asm__(".symver match_old, match_versioned@V1");
__asm__(".symver match_new, match_versioned@@V2");
int match_old(int value) { return value + 4; }
int match_new(int value) { return value + 5; }

// What <sys/sdt.h> makes of a probe: a nop, a note that says where, and a counter of its users.
unsigned short match_semaphore __attribute__((section(".probes"), visibility("default"))) = 0;

#define STATIC_PROBE(name, label, semaphore)                                                  \
  __asm__ volatile(".globl " label "\n" label                                                 \
                   ":\n990: nop\n"                                                            \
                   ".pushsection .note.stapsdt,\"\",\"note\"\n"                               \
                   ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"                              \
                   "991: .asciz \"stapsdt\"\n992: .balign 4\n"                                \
                   "993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte " semaphore               \
                   "\n"                                                                       \
                   ".asciz \"sample\"\n.asciz \"" name                                        \
                   "\"\n.asciz \"\"\n"                                                        \
                   "994: .balign 4\n.popsection\n"                                            \
                   ".ifndef _.stapsdt.base\n"                                                 \
                   ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"    \
                   ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n" \
                   ".size _.stapsdt.base, 1\n.popsection\n.endif\n")

int match_static_probes(int value) {
  STATIC_PROBE("begin", "match_site_begin", "0");
  if (value > 3) STATIC_PROBE("step", "match_site_step_1", "match_counter");
  if (value > 5) STATIC_PROBE("step", "match_site_step_2", "match_counter");
  return value;
}
__asm__(".globl match_counter\n.hidden match_counter\n.set match_counter, match_semaphore");

}  // extern "C"
