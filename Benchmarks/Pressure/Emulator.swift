import Glibc

/// Makes QEMU's emulator drop all code that it has translated.
///
/// Without KVM, QEMU translates the machine's code, and marks the pages that it comes from. Each write to such a page is
/// slow until all of its code is dropped: 4 ms for a page, measured. When memory runs short, pages of programs are
/// evicted and given to the application in front, which then waits for the emulator instead of for memory. QEMU drops
/// everything only when its buffer for translated code is full (`-accel tcg,tb-size=`). So this fills the buffer.
enum Emulator {
    /// Translated, each byte of these instructions takes some 20 bytes. `scripts/bench-pressure` sets the size of the
    /// buffer to 32 MiB.
    private static let size = 8 << 20

    static func forget() {
        #if arch(x86_64)
            let protection = PROT_READ | PROT_WRITE | PROT_EXEC
            guard let pages = mmap(nil, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                pages != MAP_FAILED
            else { Scene.fail("no memory that can be executed: \(String(cString: strerror(errno)))") }
            // mov %rax, -8(%rsp): the eight bytes below the stack pointer belong to the function.
            let instruction: [UInt8] = [0x48, 0x89, 0x44, 0x24, 0xf8]
            let code = UnsafeMutableRawBufferPointer(start: pages, count: size)
            let count = (size - 1) / instruction.count
            for number in 0..<count {
                code.baseAddress?.advanced(by: number * instruction.count)
                    .copyMemory(from: instruction, byteCount: instruction.count)
            }
            code[count * instruction.count] = 0xc3  // ret
            unsafeBitCast(pages, to: (@convention(c) () -> Void).self)()
            // These pages are marked now, too. Writing removes the marks.
            memset(pages, 0, size)
            munmap(pages, size)
        #endif
    }
}
