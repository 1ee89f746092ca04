/* A process that reaches nothing but loopback, and a file of what it tried to reach.
 *
 * Loaded by LD_PRELOAD, in a process and those that it starts; the file is $ONLY_LOOPBACK.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void tried(const char *what) {
  const char *path = getenv("ONLY_LOOPBACK");
  int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
  if (fd < 0) return;
  dprintf(fd, "%s\n", what);
  close(fd);
}

int connect(int fd, const struct sockaddr *to, socklen_t size) {
  static int (*real)(int, const struct sockaddr *, socklen_t);
  char text[INET6_ADDRSTRLEN] = "";
  if (!real) real = dlsym(RTLD_NEXT, "connect");
  if (to && to->sa_family == AF_INET) {
    const struct in_addr *address = &((const struct sockaddr_in *)to)->sin_addr;
    if (ntohl(address->s_addr) >> 24 != 127) inet_ntop(AF_INET, address, text, sizeof text);
  } else if (to && to->sa_family == AF_INET6) {
    const struct in6_addr *address = &((const struct sockaddr_in6 *)to)->sin6_addr;
    int is_mapped = IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127;
    if (!is_mapped && !IN6_IS_ADDR_LOOPBACK(address)) inet_ntop(AF_INET6, address, text, sizeof text);
  }
  if (!*text) return real(fd, to, size);
  tried(text);
  errno = ECONNREFUSED;
  return -1;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
  static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
  if (!real) real = dlsym(RTLD_NEXT, "getaddrinfo");
  char own[HOST_NAME_MAX + 1] = ""; /* Java asks for it */
  gethostname(own, HOST_NAME_MAX);
  if (!node || !strcmp(node, own) || !strncmp(node, "127.", 4) || !strcmp(node, "::1") || !strcmp(node, "localhost"))
    return real(node, service, hints, found);
  tried(node);
  return EAI_NONAME;
}
