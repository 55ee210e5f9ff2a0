/* What a jump costs whose target is read from memory, as an interpreter makes one for each instruction: nanoseconds for one that
   always goes to the same place, and for one that goes to eight places in an order that repeats after 64 jumps. A processor that
   predicts such jumps takes about the same for both. */
#include <stdio.h>
#include <time.h>

#define JUMPS 50000000L
#define LENGTH 64

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static double run(const unsigned char *program) {
    static const void *places[] = {&&a, &&b, &&c, &&d, &&e, &&f, &&g, &&h};
    long done = 0;
    volatile long sum = 0;
    double began = seconds();
#define NEXT if (++done >= JUMPS) goto end; goto *places[program[done % LENGTH]]
    NEXT;
a: sum += 1; NEXT;
b: sum += 2; NEXT;
c: sum += 3; NEXT;
d: sum += 4; NEXT;
e: sum += 5; NEXT;
f: sum += 6; NEXT;
g: sum += 7; NEXT;
h: sum += 8; NEXT;
end:
    return (seconds() - began) * 1e9 / JUMPS;
}

int main(void) {
    unsigned char same[LENGTH] = {0}, mixed[LENGTH];
    unsigned state = 1;
    for (int at = 0; at < LENGTH; at++) {
        state = state * 1103515245u + 12345u;
        mixed[at] = (state >> 16) & 7;
    }
    for (int round = 0; round < 3; round++) {
        double one = run(same);
        printf("%.3f %.3f\n", one, run(mixed));
    }
    return 0;
}
