/* Mapped for its file's name only. */
int fake_marker(void) { return 1; }
